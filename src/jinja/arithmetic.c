/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums, products, powers and signs as in Python; integers have 64 bits, and
 * what does not fit is an error. Called by eval.c. Read run.h before. */
#include <math.h>
#include <string.h>

#include "format.h"
#include "run.h"

static loong_status_t overflow(run_t *r)
{
    return jinja_fail(r, "an integer that does not fit 64 bits");
}

static loong_status_t divide_ints(run_t *r, jinja_piece_kind_t op, int64_t x,
                                  int64_t y, value_t *value_p)
{
    if (y == 0) {
        return jinja_fail(r, "division by zero");
    }
    if (x == INT64_MIN && y == -1) {
        *value_p = loongi_jinja_int(0);
        return op == JINJA_P_MOD ? LOONG_OK : overflow(r);
    }
    int64_t quotient = x / y;
    int64_t rest = x % y;
    if (rest != 0 && (rest < 0) != (y < 0)) { /* towards minus infinity */
        quotient--;
        rest += y;
    }
    *value_p = loongi_jinja_int(op == JINJA_P_MOD ? rest : quotient);
    return LOONG_OK;
}

static loong_status_t power_ints(run_t *r, int64_t base, int64_t exponent,
                                 value_t *value_p)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0) {
            return jinja_fail(r, "division by zero: 0 to a negative power");
        }
        *value_p = loongi_jinja_real(pow((double)base, (double)exponent));
        return LOONG_OK;
    }
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) {
            return overflow(r);
        }
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
            return overflow(r);
        }
    }
    *value_p = loongi_jinja_int(result);
    return LOONG_OK;
}

static loong_status_t binary_ints(run_t *r, jinja_piece_kind_t op, int64_t x,
                                  int64_t y, value_t *value_p)
{
    int64_t result = 0;
    bool wrong = false;
    switch (op) {
    case JINJA_P_ADD:
        wrong = __builtin_add_overflow(x, y, &result);
        break;
    case JINJA_P_SUB:
        wrong = __builtin_sub_overflow(x, y, &result);
        break;
    case JINJA_P_MUL:
        wrong = __builtin_mul_overflow(x, y, &result);
        break;
    case JINJA_P_POW:
        return power_ints(r, x, y, value_p);
    case JINJA_P_DIV:
        if (y == 0) {
            return jinja_fail(r, "division by zero");
        }
        *value_p = loongi_jinja_real((double)x / (double)y);
        return LOONG_OK;
    default:
        return divide_ints(r, op, x, y, value_p);
    }
    *value_p = loongi_jinja_int(result);
    return wrong ? overflow(r) : LOONG_OK;
}

static double floor_mod(double x, double y)
{
    double rest = fmod(x, y);
    if (rest != 0 && (rest < 0) != (y < 0)) {
        return rest + y;
    }
    return rest == 0 ? copysign(0.0, y) : rest;
}

static loong_status_t binary_reals(run_t *r, jinja_piece_kind_t op, double x,
                                   double y, value_t *value_p)
{
    double result = 0;
    bool divides = op == JINJA_P_DIV || op == JINJA_P_FLOORDIV ||
                   op == JINJA_P_MOD || (op == JINJA_P_POW && x == 0 && y < 0);
    if (divides && (op == JINJA_P_POW || y == 0)) {
        return jinja_fail(r, "division by zero");
    }
    switch (op) {
    case JINJA_P_ADD:
        result = x + y;
        break;
    case JINJA_P_SUB:
        result = x - y;
        break;
    case JINJA_P_MUL:
        result = x * y;
        break;
    case JINJA_P_DIV:
        result = x / y;
        break;
    case JINJA_P_FLOORDIV:
        result = floor((x - floor_mod(x, y)) / y + 0.5);
        break;
    case JINJA_P_MOD:
        result = floor_mod(x, y);
        break;
    default:
        result = pow(x, y);
        if (isnan(result) && !isnan(x) && !isnan(y)) {
            return jinja_fail(r, "a power that is no real number");
        }
        if (isinf(result) && isfinite(x) && isfinite(y)) {
            return jinja_fail(r, "a power that is too large");
        }
        break;
    }
    *value_p = loongi_jinja_real(result);
    return LOONG_OK;
}

static loong_status_t add_lists(run_t *r, value_t a, value_t b,
                                value_t *value_p)
{
    const jinja_list_t *x = jinja_list_of(a);
    const jinja_list_t *y = jinja_list_of(b);
    LOONG_TRY(jinja_list_new(r->heap, a.kind, x->count + y->count, value_p));
    value_t *items = jinja_list_of(*value_p)->items;
    if (x->count > 0) {
        memcpy(items, x->items, (size_t)x->count * sizeof(*items));
    }
    if (y->count > 0) {
        memcpy(items + x->count, y->items, (size_t)y->count * sizeof(*items));
    }
    return LOONG_OK;
}

/* + of what Python calls Markup escapes the other side. */
static loong_status_t add_texts(run_t *r, value_t a, value_t b,
                                value_t *value_p)
{
    bool markup = a.markup || b.markup;
    if (markup) {
        LOONG_TRY(jinja_escape(r, a, &a));
        LOONG_TRY(jinja_escape(r, b, &b));
    }
    LOONG_TRY(jinja_concat(r->heap, a, b, value_p));
    value_p->markup = markup;
    return LOONG_OK;
}

static loong_status_t repeat_text(run_t *r, value_t text, int64_t times,
                                  value_t *value_p)
{
    size_t mark = jinja_mark(r);
    for (int64_t i = 0; i < times && text.length > 0; i++) {
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(jinja_emit(r, text.as.text, text.length));
    }
    LOONG_TRY(jinja_take(r, mark, value_p));
    value_p->markup = text.markup;
    return LOONG_OK;
}

static loong_status_t repeat_list(run_t *r, value_t list, int64_t times,
                                  value_t *value_p)
{
    const jinja_list_t *from = jinja_list_of(list);
    value_t result;
    LOONG_TRY(loongi_jinja_list(r->heap, &result));
    for (int64_t i = 0; i < times && from->count > 0; i++) {
        for (int64_t k = 0; k < from->count; k++) {
            LOONG_TRY(jinja_step(r));
            LOONG_TRY(loongi_jinja_add(r->heap, result, from->items[k]));
        }
    }
    result.kind = list.kind;
    *value_p = result;
    return LOONG_OK;
}

static bool is_sequence(value_t value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST ||
           value.kind == JINJA_TUPLE;
}

static loong_status_t multiply(run_t *r, value_t a, value_t b, value_t *value_p)
{
    value_t sequence = is_sequence(a) ? a : b;
    int64_t times = jinja_int_of(is_sequence(a) ? b : a);
    return sequence.kind == JINJA_STRING
               ? repeat_text(r, sequence, times, value_p)
               : repeat_list(r, sequence, times, value_p);
}

loong_status_t jinja_binary(run_t *r, jinja_piece_kind_t op, value_t a,
                            value_t b, value_t *value_p)
{
    if (jinja_is_int(a) && jinja_is_int(b)) {
        return binary_ints(r, op, jinja_int_of(a), jinja_int_of(b), value_p);
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        return binary_reals(r, op, jinja_real_of(a), jinja_real_of(b), value_p);
    }
    if (a.kind == JINJA_STRING && op == JINJA_P_MOD) {
        return jinja_percent(r, a, b, value_p);
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, a.kind == JINJA_UNDEFINED ? a : b);
    }
    if (op == JINJA_P_ADD && a.kind == b.kind && is_sequence(a)) {
        return a.kind == JINJA_STRING ? add_texts(r, a, b, value_p)
                                      : add_lists(r, a, b, value_p);
    }
    if (op == JINJA_P_MUL && ((is_sequence(a) && jinja_is_int(b)) ||
                              (is_sequence(b) && jinja_is_int(a)))) {
        return multiply(r, a, b, value_p);
    }
    return jinja_fail(r, "%s is not defined for %s and %s",
                      jinja_piece_text(op), jinja_type_name(a),
                      jinja_type_name(b));
}

loong_status_t jinja_sign(run_t *r, bool negative, value_t a, value_t *value_p)
{
    if (a.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, a);
    }
    if (a.kind == JINJA_REAL) {
        *value_p = loongi_jinja_real(negative ? -a.as.real : a.as.real);
        return LOONG_OK;
    }
    if (!jinja_is_int(a)) {
        return jinja_fail(r, "a sign is not defined for %s",
                          jinja_type_name(a));
    }
    int64_t integer = jinja_int_of(a);
    if (negative && integer == INT64_MIN) {
        return overflow(r);
    }
    *value_p = loongi_jinja_int(negative ? -integer : integer);
    return LOONG_OK;
}

/* & < > ' " as HTML has them; markup stays. */
loong_status_t jinja_escape(run_t *r, value_t text, value_t *escaped_p)
{
    static const char marks[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;",
                                        "&#34;"};
    size_t mark = jinja_mark(r);
    size_t plain = 0;
    if (text.kind == JINJA_STRING && text.markup) {
        *escaped_p = text;
        return LOONG_OK;
    }
    LOONG_TRY(jinja_to_text(r, text, &text));
    for (size_t i = 0; i < text.length; i++) {
        const char *found =
            text.as.text[i] == '\0' ? NULL : strchr(marks, text.as.text[i]);
        if (found != NULL) {
            const char *name = names[found - marks];
            LOONG_TRY(jinja_emit(r, text.as.text + plain, i - plain));
            LOONG_TRY(jinja_emit(r, name, strlen(name)));
            plain = i + 1;
        }
    }
    LOONG_TRY(jinja_emit(r, text.as.text + plain, text.length - plain));
    LOONG_TRY(jinja_take(r, mark, escaped_p));
    escaped_p->markup = true;
    return LOONG_OK;
}
