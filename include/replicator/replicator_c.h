/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicator's collectives on raw buffers, for C99 and whatever can call C: link replicator::c (libreplicator-c).
 *
 *   replicator_world* world;
 *   if (replicator_init(&world) != REPLICATOR_OK) { puts(replicator_last_error(world)); exit(1); }
 *   replicator_all_reduce(world, gradient, gradient, n, REPLICATOR_FLOAT32, REPLICATOR_MEAN);
 *   replicator_finish(world);
 *   replicator_free(world);
 *
 * Every process of the job makes the same calls in the same order; a call returns when its result is complete here. Who
 * a process is says its environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, srun, or mpirun where the library
 * was built with PMIx; without any of these it is alone. A world belongs to one thread at a time.
 *
 * `count` is of the elements of one block. With one replica for each process (the default) a process contributes 1
 * block (reduce_scatter and all_to_all: one for each process). The output lies apart from the input, or begins where a
 * block of the input does ("in place"). Buffers lie where you like, aligned or not. The sums have the same bits on every
 * process, each time.
 *
 * Every function returns a replicator_status and never throws. What went wrong says replicator_last_error.
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
  REPLICATOR_MISTAKE = 1, /* of the caller's: nothing has moved, the world goes on; also every call after finish */
  REPLICATOR_FAILURE = 2, /* a process died, is late, or asked for something else: every later call says the same */
  REPLICATOR_INTERNAL = 3 /* memory ran out, say */
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

/* REPLICATOR_ANY_ORDER may be added to the reduction of an all_reduce: fewer bytes where the processes are no power of
   two, but bits that depend on their number. */
enum replicator_reduction {
  REPLICATOR_SUM = 0,
  REPLICATOR_MEAN = 1,
  REPLICATOR_MIN = 2,
  REPLICATOR_MAX = 3,
  REPLICATOR_ANY_ORDER = 256
};

/* Equal on every process, but for rank. Zero means: the default. */
typedef struct replicator_options {
  size_t size;           /* sizeof(replicator_options) */
  int replicas;          /* who contribute, dealt to the processes in blocks; default: one for each process */
  const char* transport; /* "auto", "shared_memory" or "ucx"; default: "auto" */
  double deadline;       /* seconds to wait for a process that is alive but does not come; default 300, < 0: none, as is infinity */
  int world_size;        /* default: the environment says this and the three below; the job token always */
  int rank;
  const char* master_address; /* of process 0 */
  int master_port;
} replicator_options;

/* Meets the other processes. *world is a handle even where this fails: ask it for the error, then free it. */
REPLICATOR_API int replicator_init(replicator_world** world);
REPLICATOR_API int replicator_init_with(replicator_world** world, const replicator_options* options);

/* This process, how many there are; the replicas, the first one here, how many are here. -1 where there is no world. */
REPLICATOR_API int replicator_rank(const replicator_world* world);
REPLICATOR_API int replicator_size(const replicator_world* world);
REPLICATOR_API int replicator_replicas(const replicator_world* world);
REPLICATOR_API int replicator_first_replica(const replicator_world* world);
REPLICATOR_API int replicator_local_replicas(const replicator_world* world);

/* Memory in which the other processes read and write: calls on it copy nothing. Zero at first, aligned to 64 bytes; it lives
   until replicator_finish. Every process asks for as many bytes, and then passes the same places of the same allocations. */
REPLICATOR_API int replicator_allocate(replicator_world* world, size_t bytes, void** memory);

/* input: a block for each replica here; output: 1 block, the reduction over all replicas. */
REPLICATOR_API int replicator_all_reduce(replicator_world* world, const void* input, void* output, int64_t count,
                                         int dtype, int reduction);
/* input: a block for every replica, for each replica here; output: a block for each replica here: the reduction of
   block r for replica r. */
REPLICATOR_API int replicator_reduce_scatter(replicator_world* world, const void* input, void* output, int64_t count,
                                             int dtype, int reduction);
/* input: a block for each replica here; output: the blocks of all replicas, one after the other. */
REPLICATOR_API int replicator_all_gather(replicator_world* world, const void* input, void* output, int64_t count,
                                         int dtype);
/* input: the block of replica `root`, where it is; NULL elsewhere. output: that block, everywhere. */
REPLICATOR_API int replicator_broadcast(replicator_world* world, const void* input, void* output, int64_t count,
                                        int dtype, int root);
/* input and output: a block for every replica, for each replica here; replica r gets block r of all. */
REPLICATOR_API int replicator_all_to_all(replicator_world* world, const void* input, void* output, int64_t count,
                                         int dtype);
/* Returns when every process has called it. */
REPLICATOR_API int replicator_barrier(replicator_world* world);

/* Leaves in good order: waits until every process has called it. The handle stays, for the last error. */
REPLICATOR_API int replicator_finish(replicator_world* world);
/* Ends the handle; without finish before, the other processes are left, too. NULL is allowed. */
REPLICATOR_API void replicator_free(replicator_world* world);

/* The sentence of the last call that was not REPLICATOR_OK, "" before one. Valid until the next call with this world. */
REPLICATOR_API const char* replicator_last_error(const replicator_world* world);
/* The process to blame for a REPLICATOR_FAILURE, -1 where none is known. */
REPLICATOR_API int replicator_culprit(const replicator_world* world);

#ifdef __cplusplus
}
#endif

#endif
