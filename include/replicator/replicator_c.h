/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C99 interface: replicator's collectives on raw buffers, for any language that can call C.
 * Link replicator::c (libreplicator-c).
 *
 *   replicator_world* world;
 *   if (replicator_init(&world) != REPLICATOR_OK) { puts(replicator_last_error(world)); exit(1); }
 *   replicator_all_reduce(world, gradient, gradient, n, REPLICATOR_FLOAT32, REPLICATOR_MEAN);
 *   replicator_finish(world);
 *   replicator_free(world);
 *
 * Every process of the job must make the same calls in the same order. A call returns when its result is complete in
 * this process. A world belongs to one thread at a time.
 *
 * A process finds its rank and its peers in the environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; or srun's;
 * or mpirun's if the library was built with PMIx. Without any of these it is a job of one process.
 *
 * `count` is the number of elements of one block. With one replica for each process (the default) a process contributes
 * 1 block; for reduce_scatter and all_to_all it contributes one block for each process. The output must not overlap the
 * input, unless it begins where a block of the input does ("in place"). Buffers need no alignment. Sums have the same
 * bits on every process, each time.
 *
 * Every function returns a replicator_status and never throws. replicator_last_error says what went wrong.
 */
#ifndef REPLICATOR_REPLICATOR_C_H
#define REPLICATOR_REPLICATOR_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define REPLICATOR_API __attribute__((visibility("default")))
#else
#define REPLICATOR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct replicator_world replicator_world;

enum replicator_status {
  REPLICATOR_OK = 0,
  REPLICATOR_MISTAKE = 1, /* of the caller: no data has moved, and the world still works; also any call after finish */
  REPLICATOR_FAILURE = 2, /* a process died, is late, or made a different call; every later call returns it again */
  REPLICATOR_INTERNAL = 3 /* out of memory, for example */
};

enum replicator_dtype {
  REPLICATOR_FLOAT32 = 0,
  REPLICATOR_FLOAT64 = 1,
  REPLICATOR_INT32 = 2,
  REPLICATOR_INT64 = 3,
  REPLICATOR_UINT8 = 4,
  REPLICATOR_BOOL = 5,
  REPLICATOR_BFLOAT16 = 6
};

/* REPLICATOR_ANY_ORDER may be added to the reduction of an all_reduce. If the number of processes is no power of two,
   fewer bytes move. But the bits then depend on the number of processes. */
enum replicator_reduction {
  REPLICATOR_SUM = 0,
  REPLICATOR_MEAN = 1,
  REPLICATOR_MIN = 2,
  REPLICATOR_MAX = 3,
  REPLICATOR_ANY_ORDER = 256
};

/* Must be equal on every process, except for rank. Zero means the default. */
typedef struct replicator_options {
  size_t size;           /* sizeof(replicator_options) */
  int replicas;          /* how many contribute, dealt to the processes in blocks; default: one for each process */
  const char* transport; /* "auto", "shared_memory" or "ucx"; default: "auto" */
  double deadline;       /* seconds to wait for a process that is alive but late; default 300; < 0 or infinity: no limit */
  int world_size;        /* default: from the environment, as the three below; the job token always comes from there */
  int rank;
  const char* master_address; /* of process 0 */
  int master_port;
} replicator_options;

/* Connects to the other processes. *world is a handle even on failure: ask it for the error, then free it. */
REPLICATOR_API int replicator_init(replicator_world** world);
REPLICATOR_API int replicator_init_with(replicator_world** world, const replicator_options* options);

/* The rank of this process; the number of processes; the number of replicas; the first replica of this process; the
   number of its replicas. -1 without a world. */
REPLICATOR_API int replicator_rank(const replicator_world* world);
REPLICATOR_API int replicator_size(const replicator_world* world);
REPLICATOR_API int replicator_replicas(const replicator_world* world);
REPLICATOR_API int replicator_first_replica(const replicator_world* world);
REPLICATOR_API int replicator_local_replicas(const replicator_world* world);

/* Memory shared with the other processes: collectives on it copy nothing. Initially zero, aligned to 64 bytes, valid until
   replicator_finish. Every process must ask for as many bytes, and later pass the same places of the same allocations. */
REPLICATOR_API int replicator_allocate(replicator_world* world, size_t bytes, void** memory);

/* input: one block for each replica of this process; output: 1 block, the reduction over all replicas. */
REPLICATOR_API int replicator_all_reduce(replicator_world* world, const void* input, void* output, int64_t count,
                                         int dtype, int reduction);
/* input: for each replica of this process, one block for every replica; output: one block for each replica of this
   process. Replica r gets the reduction of the blocks r. */
REPLICATOR_API int replicator_reduce_scatter(replicator_world* world, const void* input, void* output, int64_t count,
                                             int dtype, int reduction);
/* input: one block for each replica of this process; output: the blocks of all replicas, one after the other. */
REPLICATOR_API int replicator_all_gather(replicator_world* world, const void* input, void* output, int64_t count,
                                         int dtype);
/* input: the block of replica `root` on its process, NULL elsewhere; output: that block, on every process. */
REPLICATOR_API int replicator_broadcast(replicator_world* world, const void* input, void* output, int64_t count,
                                        int dtype, int root);
/* input and output: for each replica of this process, one block for every replica; replica r gets the blocks r of all. */
REPLICATOR_API int replicator_all_to_all(replicator_world* world, const void* input, void* output, int64_t count,
                                         int dtype);
/* Returns after every process has called it. */
REPLICATOR_API int replicator_barrier(replicator_world* world);

/* Leaves the job in good order: waits until every process has called it. The handle stays valid for the last error. */
REPLICATOR_API int replicator_finish(replicator_world* world);
/* Frees the handle. Without replicator_finish before, this process leaves the job as well. NULL is allowed. */
REPLICATOR_API void replicator_free(replicator_world* world);

/* The message of the last call that did not return REPLICATOR_OK; "" if there was none. Valid until the next call with
   this world. */
REPLICATOR_API const char* replicator_last_error(const replicator_world* world);
/* The process that caused a REPLICATOR_FAILURE, or -1 if unknown. */
REPLICATOR_API int replicator_culprit(const replicator_world* world);

#ifdef __cplusplus
}
#endif

#endif
