/* Root-mean-square norm of rows, float32. Rows are independent, so the number of threads does not change a result. */

#include "../vectors.h"

/* out[n] = w * x[n] / sqrt(mean(x[n]^2) + eps); x, out [N][D]; w [D] or NULL. */
void rms_norm(const float *x, const float *w, float *out, int64_t N, int64_t D, float eps, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t n = 0; n < N; n++) {
        const float *row = x + n * D;
        float *to = out + n * D;
        const float factor = 1.f / sqrtf(sum_of_squares(row, D) / D + eps);
        if (w) for (int64_t d = 0; d < D; d++) to[d] = row[d] * factor * w[d];
        else for (int64_t d = 0; d < D; d++) to[d] = row[d] * factor;
    }
}
