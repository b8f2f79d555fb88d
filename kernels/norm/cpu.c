/* Root-mean-square norm of rows, float32. Rows are independent, so the number of threads does not change a result. */

#include "../vectors.h"

/* out = w * row / sqrt(mean(row^2) + eps), D long; w may be NULL. */
INLINE void norm_row(const float *row, const float *w, float *out, int64_t D, float eps) {
    const float factor = 1.f / sqrtf(sum_of_squares(row, D) / D + eps);
    if (w) for (int64_t d = 0; d < D; d++) out[d] = row[d] * factor * w[d];
    else for (int64_t d = 0; d < D; d++) out[d] = row[d] * factor;
}

/* out[n] = norm of x[n]; x, out [N][D]. */
void rms_norm(const float *x, const float *w, float *out, int64_t N, int64_t D, float eps, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++) norm_row(x + n * D, w, out + n * D, D, eps);
}

/* sum[n] = x[n] + update[n], out[n] = norm of sum[n]; all [N][D]. */
void add_rms_norm(const float *x, const float *update, const float *w, float *sum, float *out, int64_t N, int64_t D, float eps, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++) {
        for (int64_t d = n * D; d < n * D + D; d++) sum[d] = x[d] + update[d];
        norm_row(sum + n * D, w, out + n * D, D, eps);
    }
}
