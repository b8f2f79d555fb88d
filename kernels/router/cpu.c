/* Top-k routing, float32. Ties go to the lowest expert. */

#include "../vectors.h"

INLINE float score_of(float x, int sigmoid) {
    if (sigmoid) return 1.f / (1.f + expf(-x));
    return sqrtf(x > 20.f ? x : log1pf(expf(x)));
}

/* logits [N][E]; bias [E], or [N][E] with bias_stride E; ids int64 [N][k] and weights [N][k] are written; scratch [N][2E]. */
void route(const float *logits, const float *bias, int64_t bias_stride, int64_t *ids, float *weights, float *scratch, int64_t N, int64_t E,
           int64_t k, int sigmoid, float scale, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++) {
        float *score = scratch + n * 2 * E, *choice = score + E, sum = 0.f;
        for (int64_t e = 0; e < E; e++) {
            score[e] = score_of(logits[n * E + e], sigmoid);
            choice[e] = score[e] + bias[n * bias_stride + e];
        }
        for (int64_t j = 0; j < k; j++) {
            int64_t best = -1;
            for (int64_t e = 0; e < E; e++)
                if (choice[e] == choice[e] && choice[e] > -INFINITY && (best < 0 || choice[e] > choice[best])) best = e;
            if (best < 0) best = 0; /* every choice is NaN: the step fails later with a clear message */
            ids[n * k + j] = best;
            weights[n * k + j] = score[best];
            sum += score[best];
            choice[best] = -INFINITY;
        }
        for (int64_t j = 0; j < k; j++) weights[n * k + j] *= scale / (sum + 1e-20f);
    }
}
