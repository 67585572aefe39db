/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer's ops. They have no builder: the update program is made of flat
 * ranges (src/optim).
 */
#ifndef LOONG_UPDATE_H
#define LOONG_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* adamw, lion, sgd, ema, ema_swap: grad wide [n] -> param [n], low u16 [n]
 * (only with a bf16 param: low half of the fp32 master, see below; else
 * absent), states [n], each wide or bf16; the outputs are updated in place.
 * With g = grad * frame.grad_scale, t = frame.updates + 1, lr =
 * frame.lr[group]: adamw (Loshchilov and Hutter 2019, algorithm 2), states m,
 * v: m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g p = p - lr (m
 * / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)
 *               + weight_decay p)
 * lion (Chen et al. 2023, algorithm 2), state m; the sign of 0 is 0:
 *   p = p - lr (sign(beta1 m + (1 - beta1) g) + weight_decay p)
 *   m = beta2 m + (1 - beta2) g
 * sgd (as torch.optim.SGD without dampening; Sutskever et al. 2013), state b:
 *   d = g + weight_decay p;  b = momentum b + d
 *   p = p - lr (nesterov ? d + momentum b : b)
 * ema, with grad ignored and a wide state e, leaves p as it is:
 *   e = d e + (1 - d) p;  d: n = frame.updates - ema_start; 0 where n <= 0,
 *   else ema_decay, with ema_warmup at most (1 + n) / (10 + n)
 * ema_swap, likewise, exchanges p and e, bit for bit.
 * A bf16 parameter is its fp32 master rounded to nearest even, except that a
 * tie rounds away; the low half restores it exactly:
 * master bits = ((hi - (low >> 15)) << 16) | low.
 *
 * The step takes the states as they were calculated; bf16 ones are stored
 * rounded to nearest even, or where pieces are named up or down by chance, so
 * that the mean is the fp32 value: 16 random bits are added to its bits, and
 * the low 16 of the sum are cut off. They depend on the frame's seed and step,
 * the parameter and the element's number e in the whole of it alone: part e mod
 * 4 of a Philox block (kernels/optimizer/stochastic.h), the low half for the
 * first state, the high half for the second. Elements of the operands from `at`
 * on, up to the next piece, are of one parameter: i is p = begin + i - at of
 * what the rank has of it, and e = first + p / run * stride + p mod run. */
typedef struct loong_update_piece {
    int64_t at;      /* 0 in the first one, then above that of the last */
    uint64_t stream; /* of random bits: the parameter's */
    int64_t begin, first, run, stride; /* run: above 0 */
} loong_update_piece_t;
typedef struct loong_update_attr {
    int group;           /* of frame.lr[] */
    double beta1, beta2; /* adamw, lion */
    double eps;          /* adamw */
    double momentum;     /* sgd */
    bool nesterov;       /* sgd */
    double weight_decay;
    double ema_decay; /* of ema alone, as the next two */
    int64_t ema_start;
    bool ema_warmup;
    int num_pieces; /* 0: rounded to nearest */
    const loong_update_piece_t *pieces;
} loong_update_attr_t;

/* muon (Jordan et al. 2024, momentum as torch.optim.Muon's) takes several ops a
 * matrix [R,C], of which the operands of the rank are rows and columns [r,c]:
 * row k of these is row + k, or with span row + k / span * apart + k mod span,
 * and column l is col + l.
 * muon_momentum: grad wide [r,c] -> buffer wide [r,c], u wide [R,C]:
 *   b = momentum b + (1 - momentum) g
 *   u = nesterov ? momentum b + (1 - momentum) g : b, 0 outside of the rank's
 * muon_normalize: u [n], stats of it f64 [3] -> x [n]: u / max(norm, 1e-7)
 * muon_polynomial: a = x x' and p = a a', both [m,m] -> 3.4445 I - 4.7750 a
 *   + 2.0315 p, which may be in the place of p; times x it is a step of
 *   Newton-Schulz.
 * muon_step: o wide [R,C] -> param [r,c], low as above:
 *   p = p - lr (scale o + weight_decay p) */
typedef struct loong_muon_attr {
    int group; /* of frame.lr[] */
    double momentum;
    bool nesterov;
    double weight_decay;
    double scale;
    int64_t row, span, apart, col;
} loong_muon_attr_t;

/* sumsq: x wide [n] -> record i64 [LOONG_EXACT_WORDS]: the sum of squares of
 * x as an exact accumulator (base/exact_sum.h); the call's accumulate bit 0
 * adds to the record. sum: the same for the sum of x (losses). */

#ifdef __cplusplus
}
#endif

#endif
