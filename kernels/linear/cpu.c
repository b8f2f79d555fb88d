/* Products of few float32 tokens with float32 or bfloat16 weights, read once and widened in registers.

   Every output is one dot product in a fixed order, so neither threads nor other tokens change a result. */

#include "../pool.h"
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

typedef struct {
    const float *x;
    const void *w;
    float *y;
    int64_t N, O, I, x_stride, rows; /* rows of w in a part, a multiple of TILE */
    int half;
} Product;

static void product_part(const void *task, int64_t part) {
    const Product *p = task;
    const int64_t end = (part + 1) * p->rows < p->O ? (part + 1) * p->rows : p->O;
    for (int64_t o = part * p->rows; o < end; o += TILE) {
        const int64_t rows = end - o < TILE ? end - o : TILE;
        if (p->half) strip(p->x, row_of(p->w, o * p->I, 1), p->y + o, p->N, p->I, p->x_stride, p->O, rows, 1);
        else strip(p->x, row_of(p->w, o * p->I, 0), p->y + o, p->N, p->I, p->x_stride, p->O, rows, 0);
    }
}

/* Rows in a part: several parts for each thread, so that one that starts late takes fewer. */
INLINE int64_t rows_of_part(int64_t rows, int threads) {
    const int64_t tiles = (rows + TILE - 1) / TILE, parts = (int64_t)threads * 8;
    return tiles > parts ? (tiles + parts - 1) / parts * TILE : TILE;
}

/* y [N][O]; x has a stride per token; w [O][I], bfloat16 if half. */
void linear(const float *x, const void *w, float *y, int64_t N, int64_t O, int64_t I, int64_t x_stride, int half, int threads) {
    const Product task = {x, w, y, N, O, I, x_stride, rows_of_part(O, threads), half};
    pool_run(product_part, &task, (O + task.rows - 1) / task.rows, threads);
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

typedef struct {
    const float *x;
    const void *gate_up;
    float *hidden;
    int64_t N, H, I, x_stride, rows;
    float limit;
    int half;
} Gated;

static void gated_part(const void *task, int64_t part) {
    const Gated *p = task;
    const int64_t end = (part + 1) * p->rows < p->I ? (part + 1) * p->rows : p->I;
    for (int64_t i = part * p->rows; i < end; i += TILE) {
        const int64_t rows = end - i < TILE ? end - i : TILE, gate = i * p->H, up = (p->I + i) * p->H;
        if (p->half)
            gated_strip(p->x, row_of(p->gate_up, gate, 1), row_of(p->gate_up, up, 1), p->hidden + i, p->N, p->H, p->I, p->x_stride, rows,
                        p->limit, 1);
        else
            gated_strip(p->x, row_of(p->gate_up, gate, 0), row_of(p->gate_up, up, 0), p->hidden + i, p->N, p->H, p->I, p->x_stride, rows,
                        p->limit, 0);
    }
}

/* y [N][H] = down hidden, hidden [N][I] as above; x has a stride per token; gate_up [2I][H] and down [H][I], bfloat16 if half. */
void gated_mlp(const float *x, const void *gate_up, const void *down, float *hidden, float *y, int64_t N, int64_t H, int64_t I,
               int64_t x_stride, float limit, int half, int threads) {
    const Gated task = {x, gate_up, hidden, N, H, I, x_stride, rows_of_part(I, threads), limit, half};
    pool_run(gated_part, &task, (I + task.rows - 1) / task.rows, threads);
    linear(hidden, down, y, N, H, I, I, half, threads);
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

typedef struct {
    const float *x;
    const void *w;
    float *y;
    int64_t N, H, I, O, token_stride, head_stride, parts; /* parts of one head */
    int half;
} Heads;

static void head_task(const void *task, int64_t part) {
    const Heads *p = task;
    const int64_t h = part / p->parts, o = part % p->parts * TILE * 16, width = p->O - o < TILE * 16 ? p->O - o : TILE * 16;
    const int64_t at = h * p->I * p->O + o;
    const float *from = p->x + h * p->head_stride;
    float *to = p->y + h * p->O + o;
    if (p->half) head_part(from, row_of(p->w, at, 1), to, p->N, p->I, p->O, width, p->token_stride, p->H * p->O, 1);
    else head_part(from, row_of(p->w, at, 0), to, p->N, p->I, p->O, width, p->token_stride, p->H * p->O, 0);
}

/* y [N][H][O]; x has strides per token and head; w [H][I][O], bfloat16 if half. */
void headwise_linear(const float *x, const void *w, float *y, int64_t N, int64_t H, int64_t I, int64_t O, int64_t token_stride,
                     int64_t head_stride, int half, int threads) {
    const int64_t parts = (O + TILE * 16 - 1) / (TILE * 16);
    const Heads task = {x, w, y, N, H, I, O, token_stride, head_stride, parts, half};
    pool_run(head_task, &task, H * parts, threads);
}
