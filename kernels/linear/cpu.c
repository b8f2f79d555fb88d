/* Products of few float32 tokens with float32 or bfloat16 weights, read once and widened in registers.

   Every output is one dot product in a fixed order, so neither threads nor other tokens change a result. */

#include "../vectors.h"

#define TOKENS 4 /* of one tile */

INLINE float widened(const void *p, int64_t at, const int half) {
    if (!half) return ((const float *)p)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)p)[at] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE const void *row_of(const void *w, int64_t at, const int half) {
    return half ? (const void *)((const uint16_t *)w + at) : (const void *)((const float *)w + at);
}

/* y[t][r] = x[t] . w[r] for `rows` rows of length I and `tokens` tokens. */
INLINE void tile(const float *x, const void *w, float *y, int64_t I, int64_t x_stride, int64_t y_stride, const int rows, const int tokens,
                 const int half) {
    v16 acc[TILE][TOKENS];
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens; t++) acc[r][t] = spread(0.f);
    int64_t i = 0;
    for (; i + 16 <= I; i += 16) {
        v16 own[TOKENS];
        for (int t = 0; t < tokens; t++) own[t] = load(x + t * x_stride + i);
        for (int r = 0; r < rows; r++) {
            const v16 weight = load_row(row_of(w, r * I, half), i, half);
            __builtin_prefetch(row_of(w, (r + rows) * I + i, half)); /* the next tile; rows are too short for the processor to guess */
            for (int t = 0; t < tokens; t++) acc[r][t] += weight * own[t];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int t = 0; t < tokens; t++) {
            float rest = 0.f;
            for (int64_t j = i; j < I; j++) rest += widened(w, r * I + j, half) * x[t * x_stride + j];
            y[t * y_stride + r] = total(acc[r][t]) + rest;
        }
}

INLINE void strip(const float *x, const void *w, float *y, int64_t N, int64_t I, int64_t x_stride, int64_t O, int64_t rows,
                  const int half) {
    int64_t n = 0;
    if (rows == TILE) {
        for (; n + TOKENS <= N; n += TOKENS) tile(x + n * x_stride, w, y + n * O, I, x_stride, O, TILE, TOKENS, half);
        for (; n < N; n++) tile(x + n * x_stride, w, y + n * O, I, x_stride, O, TILE, 1, half);
    } else {
        for (; n < N; n++)
            for (int64_t r = 0; r < rows; r++) tile(x + n * x_stride, row_of(w, r * I, half), y + n * O + r, I, x_stride, O, 1, 1, half);
    }
}

/* y [N][O]; x has a stride per token; w [O][I], bfloat16 if half. */
void linear(const float *x, const void *w, float *y, int64_t N, int64_t O, int64_t I, int64_t x_stride, int half, int threads) {
    const int64_t tiles = (O + TILE - 1) / TILE;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t job = 0; job < tiles; job++) {
        const int64_t o = job * TILE, rows = O - o < TILE ? O - o : TILE;
        if (half) strip(x, row_of(w, o * I, 1), y + o, N, I, x_stride, O, rows, 1);
        else strip(x, row_of(w, o * I, 0), y + o, N, I, x_stride, O, rows, 0);
    }
}

/* hidden[t][r] = silu(min(g, limit)) * clip(u, limit), g and u the products with row r of the gate and of the up matrix. */
INLINE void gated_strip(const float *x, const void *gate, const void *up, float *hidden, int64_t N, int64_t H, int64_t I, int64_t x_stride,
                        int64_t rows, float limit, const int half) {
    float u[TOKENS][TILE];
    for (int64_t n = 0; n < N; n += TOKENS) {
        const int64_t tokens = N - n < TOKENS ? N - n : TOKENS;
        strip(x + n * x_stride, gate, hidden + n * I, tokens, H, x_stride, I, rows, half);
        strip(x + n * x_stride, up, u[0], tokens, H, x_stride, TILE, rows, half);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t r = 0; r < rows; r++) {
                float *to = hidden + (n + t) * I + r, g = *to > limit ? limit : *to, v = u[t][r];
                v = v > limit ? limit : v < -limit ? -limit : v;
                *to = g / (1.f + expf(-g)) * v;
            }
    }
}

/* y [N][H] = down hidden, hidden [N][I] as above; x has a stride per token; gate_up [2I][H] and down [H][I], bfloat16 if half. */
void gated_mlp(const float *x, const void *gate_up, const void *down, float *hidden, float *y, int64_t N, int64_t H, int64_t I,
               int64_t x_stride, float limit, int half, int threads) {
    const int64_t inner = (I + TILE - 1) / TILE, outer = (H + TILE - 1) / TILE;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t job = 0; job < inner; job++) {
            const int64_t i = job * TILE, rows = I - i < TILE ? I - i : TILE, up = (I + i) * H;
            if (half) gated_strip(x, row_of(gate_up, i * H, 1), row_of(gate_up, up, 1), hidden + i, N, H, I, x_stride, rows, limit, 1);
            else gated_strip(x, row_of(gate_up, i * H, 0), row_of(gate_up, up, 0), hidden + i, N, H, I, x_stride, rows, limit, 0);
        }
#pragma omp for schedule(static)
        for (int64_t job = 0; job < outer; job++) {
            const int64_t o = job * TILE, rows = H - o < TILE ? H - o : TILE;
            if (half) strip(hidden, row_of(down, o * I, 1), y + o, N, I, I, H, rows, 1);
            else strip(hidden, row_of(down, o * I, 0), y + o, N, I, I, H, rows, 0);
        }
    }
}

/* y[t][0..width) = sum over i of x[t][i] w[i][0..width) for `tokens` tokens; rows of w are O apart, width is at most TILE * 16. */
INLINE void columns(const float *x, const void *w, float *y, int64_t I, int64_t O, int64_t width, int64_t x_stride, int64_t y_stride,
                    const int tokens, const int half) {
    int64_t o = 0;
    if (width == TILE * 16) {
        v16 acc[TOKENS][TILE];
        for (int t = 0; t < tokens; t++)
            for (int c = 0; c < TILE; c++) acc[t][c] = spread(0.f);
        for (int64_t i = 0; i < I; i++)
            for (int c = 0; c < TILE; c++) {
                const v16 weight = load_row(row_of(w, i * O, half), c * 16, half);
                for (int t = 0; t < tokens; t++) acc[t][c] += spread(x[t * x_stride + i]) * weight;
            }
        for (int t = 0; t < tokens; t++)
            for (int c = 0; c < TILE; c++) store(y + t * y_stride + c * 16, acc[t][c]);
        o = width;
    }
    for (; o + 16 <= width; o += 16) {
        v16 acc[TOKENS];
        for (int t = 0; t < tokens; t++) acc[t] = spread(0.f);
        for (int64_t i = 0; i < I; i++) {
            const v16 weight = load_row(row_of(w, i * O, half), o, half);
            for (int t = 0; t < tokens; t++) acc[t] += spread(x[t * x_stride + i]) * weight;
        }
        for (int t = 0; t < tokens; t++) store(y + t * y_stride + o, acc[t]);
    }
    for (; o < width; o++)
        for (int t = 0; t < tokens; t++) {
            float sum = 0.f;
            for (int64_t i = 0; i < I; i++) sum += x[t * x_stride + i] * widened(w, i * O + o, half);
            y[t * y_stride + o] = sum;
        }
}

INLINE void head_part(const float *x, const void *w, float *y, int64_t N, int64_t I, int64_t O, int64_t width, int64_t x_stride,
                      int64_t y_stride, const int half) {
    int64_t n = 0;
    for (; n + TOKENS <= N; n += TOKENS) columns(x + n * x_stride, w, y + n * y_stride, I, O, width, x_stride, y_stride, TOKENS, half);
    for (; n < N; n++) columns(x + n * x_stride, w, y + n * y_stride, I, O, width, x_stride, y_stride, 1, half);
}

/* y [N][H][O]; x has strides per token and head; w [H][I][O], bfloat16 if half. */
void headwise_linear(const float *x, const void *w, float *y, int64_t N, int64_t H, int64_t I, int64_t O, int64_t token_stride,
                     int64_t head_stride, int half, int threads) {
    const int64_t parts = (O + TILE * 16 - 1) / (TILE * 16);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t job = 0; job < H * parts; job++) {
        const int64_t h = job / parts, o = job % parts * TILE * 16, width = O - o < TILE * 16 ? O - o : TILE * 16;
        const float *from = x + h * head_stride;
        float *to = y + h * O + o;
        if (half) head_part(from, row_of(w, h * I * O + o, 1), to, N, I, O, width, token_stride, H * O, 1);
        else head_part(from, row_of(w, h * I * O + o, 0), to, N, I, O, width, token_stride, H * O, 0);
    }
}
