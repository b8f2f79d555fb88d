/* Threads for the parts of one decode step, which take microseconds each. */
#pragma once
#include <stdint.h>

/* One part of a task; parts of a task may run in any order and at the same time. */
typedef void (*Part)(const void *task, int64_t part);

/* Run parts 0 .. parts - 1 with at most `threads` threads, the caller among them, and return when all are done. */
void pool_run(Part run, const void *task, int64_t parts, int threads);
