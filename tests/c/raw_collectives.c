/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every collective of the C interface on the buffers of six replicas, over however many processes there are.
 *
 *   raw_collectives [TRANSPORT]          prints a digest of all results, then what a call after the end answers
 *   raw_collectives TRANSPORT FATE       process 1 goes: "kill", "exit", "stop"; the others print what they are told
 */
#define _POSIX_C_SOURCE 200112L
#include <inttypes.h>
#include <replicator/replicator_c.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  replicas = 6,
  count = 1003
};

static uint64_t digest = 14695981039346656037u;

static void add(const void* data, size_t bytes) {
  const unsigned char* byte = data;
  size_t i;
  for (i = 0; i < bytes; ++i) digest = (digest ^ byte[i]) * 1099511628211u;
}

static void require(replicator_world* world, int status) {
  if (status == REPLICATOR_OK) return;
  printf("status %d, culprit %d: %s\n", status, replicator_culprit(world), replicator_last_error(world));
  fflush(stdout);
  exit(status);
}

/* Numbers whose sums must round. */
static float value(int replica, int i) {
  uint32_t x = (uint32_t)replica * 2654435761u + (uint32_t)i * 40503u + 12345u;
  x ^= x >> 13;
  x *= 1274126177u;
  x ^= x >> 16;
  return ((float)(x >> 8) - 8388608.0f) * 1.3e-7f;
}

/* `n` elements for each replica that is here. */
static float* inputs(const replicator_world* world, int n) {
  float* all = malloc(((size_t)(replicator_local_replicas(world) * n) + 1) * sizeof *all);
  int r, i;
  for (r = 0; r < replicator_local_replicas(world); ++r)
    for (i = 0; i < n; ++i) all[r * n + i] = value(replicator_first_replica(world) + r, i);
  return all;
}

/* What the replicas here got, `n` elements each, as everybody's digest. */
static void add_everywhere(replicator_world* world, const float* mine, int n) {
  float* all = malloc((size_t)(replicas * n) * sizeof *all);
  require(world, replicator_all_gather(world, mine, all, n, REPLICATOR_FLOAT32));
  add(all, (size_t)(replicas * n) * sizeof *all);
  free(all);
}

static void reduce_everything(replicator_world* world) {
  const int lengths[] = {0, 1, 5, count};
  size_t k;
  float* sum = malloc(count * sizeof *sum);
  float* mine;
  for (k = 0; k < sizeof lengths / sizeof *lengths; ++k) {
    mine = inputs(world, lengths[k]);
    require(world, replicator_all_reduce(world, mine, sum, lengths[k], REPLICATOR_FLOAT32, REPLICATOR_SUM));
    add(sum, (size_t)lengths[k] * sizeof *sum);
    free(mine);
  }
  mine = inputs(world, count);
  require(world, replicator_all_reduce(world, mine, sum, count, REPLICATOR_FLOAT32, REPLICATOR_MAX));
  add(sum, count * sizeof *sum);
  require(world, replicator_all_reduce(world, mine, mine, count, REPLICATOR_FLOAT32, REPLICATOR_MEAN));
  add(mine, count * sizeof *mine);
  free(sum);
  free(mine);
}

static void move_everything(replicator_world* world) {
  const int local = replicator_local_replicas(world);
  const int root = 4 - replicator_first_replica(world); /* among those that are here, or not */
  float* mine = inputs(world, replicas * count);
  float* got = malloc((size_t)(local * count) * sizeof *got);
  require(world, replicator_reduce_scatter(world, mine, got, count, REPLICATOR_FLOAT32, REPLICATOR_SUM));
  add_everywhere(world, got, count);
  require(world, replicator_all_to_all(world, mine, mine, count, REPLICATOR_FLOAT32));
  add_everywhere(world, mine, replicas * count);
  require(world, replicator_broadcast(world, root >= 0 && root < local ? mine + root * replicas * count : NULL, got,
                                      count, REPLICATOR_FLOAT32, 4));
  add(got, count * sizeof *got);
  require(world, replicator_barrier(world));
  free(got);
  free(mine);
}

static void lose_process_1(replicator_world* world, const char* how) {
  float* mine = inputs(world, count);
  int i;
  for (i = 0;; ++i) {
    if (i == 3 && replicator_rank(world) == 1) {
      if (strcmp(how, "exit") == 0) exit(9);
      raise(strcmp(how, "stop") == 0 ? SIGSTOP : SIGKILL);
    }
    require(world, replicator_all_reduce(world, mine, mine, count, REPLICATOR_FLOAT32, REPLICATOR_MEAN));
  }
}

int main(int argc, char** argv) {
  replicator_world* world = NULL;
  replicator_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.replicas = replicas;
  if (argc > 1) options.transport = argv[1];
  require(world, replicator_init_with(&world, &options));
  if (argc > 2) lose_process_1(world, argv[2]);
  reduce_everything(world);
  move_everything(world);
  require(world, replicator_finish(world));
  printf("digest: %016" PRIx64 "\n", digest);
  printf("barrier after finish: %d", replicator_barrier(world));
  printf(" %s\n", replicator_last_error(world));
  replicator_free(world);
  return 0;
}
