/* A pool whose threads help but are never waited for unless they hold a part.

   A barrier, as OpenMP has it, waits for every thread; when another program has taken a thread's processor, that is a slice of
   the scheduler (milliseconds) for a task of microseconds. Here threads take parts from a shared counter, many at first and
   single ones at last, so what a sleeping thread has not taken, the caller does itself. Idle threads look for a new task for some
   500 us, which lasts from one task of a step to the next, then sleep: waking one costs more than most tasks.

   On a busy machine help does harm: a thread is put to sleep with a part in hand, or looks for work on the processor that the
   caller needs. So help that was late or did not come is not asked for again for a while, each time twice as long. */

#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { MOST_HELPERS = 63, LOOKS = 20000, MISSED = 8 };
enum { LATE = 50000, SHORTEST_PAUSE = 3000000, LONGEST_PAUSE = 300000000 }; /* ns */
static const uint32_t CLOSED = 0xffffffff;

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

/* The number of the task in the upper half and its next part in the lower half, CLOSED when nothing is to be taken. */
static _Alignas(64) _Atomic uint64_t state = 0xffffffff; /* each group of these on its own line of the processors' caches */
static _Alignas(64) _Atomic int64_t done;                 /* finished parts */
/* The task; written only while `state` is closed. */
static _Alignas(64) _Atomic(Part) current_run;
static const void *_Atomic current_task;
static _Atomic uint32_t current_parts;
static _Atomic int current_threads;

static _Alignas(64) pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER; /* held by the caller whose task runs */
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static _Atomic int sleeping;
static int helpers;
/* Until when tasks are run alone, how long the last such pause was, and how many tasks in a row nobody helped with. */
static int64_t alone_until, last_pause, missed;

/* Take and run parts of the open task until there are none; how many. */
static int64_t take_parts(int place) {
    uint64_t seen = atomic_load_explicit(&state, memory_order_acquire);
    int64_t finished = 0;
    while ((uint32_t)seen != CLOSED) {
        /* If another task is being written meanwhile, `state` has changed and the exchange below fails. */
        const Part run = atomic_load_explicit(&current_run, memory_order_relaxed);
        const void *task = atomic_load_explicit(&current_task, memory_order_relaxed);
        const uint32_t first = (uint32_t)seen, parts = atomic_load_explicit(&current_parts, memory_order_relaxed);
        const int threads = atomic_load_explicit(&current_threads, memory_order_relaxed);
        if (first >= parts || place >= threads) break;
        const uint32_t share = (parts - first) / (2 * (uint32_t)threads), taken = share ? share : 1;
        if (!atomic_compare_exchange_weak_explicit(&state, &seen, seen + taken, memory_order_acq_rel, memory_order_acquire)) continue;
        for (uint32_t part = first; part < first + taken; part++) run(task, part);
        finished += taken;
        seen = atomic_load_explicit(&state, memory_order_acquire);
    }
    if (finished) atomic_fetch_add_explicit(&done, finished, memory_order_release);
    return finished;
}

static void *help(void *place) {
    uint32_t last = 0;
    for (;;) {
        int looks = 0;
        uint64_t seen;
        while (seen = atomic_load_explicit(&state, memory_order_acquire), (uint32_t)seen == CLOSED || (uint32_t)(seen >> 32) == last) {
            if (looks++ < LOOKS) {
                PAUSE();
                continue;
            }
            pthread_mutex_lock(&bed);
            atomic_fetch_add(&sleeping, 1);
            while (seen = atomic_load(&state), (uint32_t)seen == CLOSED || (uint32_t)(seen >> 32) == last) pthread_cond_wait(&bell, &bed);
            atomic_fetch_sub(&sleeping, 1);
            pthread_mutex_unlock(&bed);
        }
        last = (uint32_t)(seen >> 32);
        take_parts((int)(intptr_t)place);
    }
    return 0;
}

/* A forked process has the caller's thread only. */
static void forget(void) {
    helpers = 0;
    atomic_store(&sleeping, 0);
    pthread_mutex_init(&busy, 0);
    pthread_mutex_init(&bed, 0);
    pthread_cond_init(&bell, 0);
}

__attribute__((constructor)) static void prepare(void) { pthread_atfork(0, 0, forget); }

static void hire(int wanted) {
    while (helpers < wanted && helpers < MOST_HELPERS) {
        pthread_t thread;
        if (pthread_create(&thread, 0, help, (void *)(intptr_t)(helpers + 1))) return;
        pthread_detach(thread);
        helpers++;
    }
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void judge(int helped, int late, int64_t time) {
    missed = helped ? 0 : missed + 1;
    if (late || missed >= MISSED) {
        last_pause = last_pause ? 2 * last_pause : SHORTEST_PAUSE;
        if (last_pause > LONGEST_PAUSE) last_pause = LONGEST_PAUSE;
        alone_until = time + last_pause;
        missed = 0;
    } else if (helped) {
        last_pause -= last_pause / 32; /* trust comes back slowly */
        if (last_pause < SHORTEST_PAUSE) last_pause = 0;
    }
}

void pool_run(Part run, const void *task, int64_t parts, int threads) {
    const int mine = threads > 1 && parts > 1 && parts < CLOSED && !pthread_mutex_trylock(&busy);
    const int64_t begin = mine ? now() : 0;
    if (!mine || begin < alone_until) {
        if (mine) pthread_mutex_unlock(&busy);
        for (int64_t part = 0; part < parts; part++) run(task, part);
        return;
    }
    hire(threads - 1);
    atomic_store_explicit(&current_run, run, memory_order_relaxed);
    atomic_store_explicit(&current_task, task, memory_order_relaxed);
    atomic_store_explicit(&current_parts, (uint32_t)parts, memory_order_relaxed);
    atomic_store_explicit(&current_threads, threads, memory_order_relaxed);
    atomic_store_explicit(&done, 0, memory_order_relaxed);
    const uint64_t number = (atomic_load_explicit(&state, memory_order_relaxed) >> 32) + 1;
    atomic_store(&state, number << 32);
    if (atomic_load(&sleeping)) {
        pthread_mutex_lock(&bed);
        pthread_cond_broadcast(&bell);
        pthread_mutex_unlock(&bed);
    }
    const int64_t own = take_parts(0);
    const int64_t finished = now();
    for (int looks = 1; atomic_load_explicit(&done, memory_order_acquire) < parts; looks++) {
        if (looks % 1000) PAUSE();
        else sched_yield(); /* the thread that holds a part may need this very processor */
    }
    const int64_t end = now(), waited = end - finished;
    judge(own < parts, waited > LATE && waited > (finished - begin) / 2, end);
    atomic_store_explicit(&state, number << 32 | CLOSED, memory_order_release);
    pthread_mutex_unlock(&busy);
}
