/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests: `x is odd`. Called by call.c. Read builtin.h before. */
#include <string.h>

#include "text.h"

static loong_status_t give(value_t *result, bool is)
{
    *result = loongi_jinja_bool(is);
    return LOONG_OK;
}

static bool named(const jinja_call_t *call, const char *name)
{
    return strcmp(call->builtin->name, name) == 0;
}

/* What depends only on what kind of value it is. */
static loong_status_t of_kind(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    static const struct {
        const char *name;
        unsigned kinds; /* a bit for each */
    } rows[] = {
        {"undefined", 1u << JINJA_UNDEFINED},
        {"none", 1u << JINJA_NONE},
        {"boolean", 1u << JINJA_BOOL},
        {"integer", 1u << JINJA_INT},
        {"float", 1u << JINJA_REAL},
        {"number", 1u << JINJA_BOOL | 1u << JINJA_INT | 1u << JINJA_REAL},
        {"string", 1u << JINJA_STRING},
        {"mapping", 1u << JINJA_DICT},
        {"sequence", 1u << JINJA_STRING | 1u << JINJA_LIST | 1u << JINJA_TUPLE |
                         1u << JINJA_DICT | 1u << JINJA_RANGE |
                         1u << JINJA_UNDEFINED},
        {"callable", 1u << JINJA_FUNCTION | 1u << JINJA_METHOD |
                         1u << JINJA_MACRO | 1u << JINJA_LOOP |
                         1u << JINJA_JOINER | 1u << JINJA_UNDEFINED},
        {"iterable", 1u << JINJA_STRING | 1u << JINJA_LIST | 1u << JINJA_TUPLE |
                         1u << JINJA_DICT | 1u << JINJA_RANGE |
                         1u << JINJA_VIEW | 1u << JINJA_ITERATOR |
                         1u << JINJA_UNDEFINED | 1u << JINJA_LOOP},
    };
    (void)r;
    for (int64_t k = 0; k < LOONG_COUNT_OF(rows); k++) {
        if (named(call, rows[k].name)) {
            return give(result, (rows[k].kinds >> call->self.kind) & 1);
        }
    }
    return give(result, call->self.kind != JINJA_UNDEFINED); /* defined */
}

static loong_status_t remainder_is(run_t *r, const jinja_call_t *call,
                                   value_t *result)
{
    value_t by =
        named(call, "divisibleby") ? call->arg[0] : loongi_jinja_int(2);
    value_t rest;
    bool equal = false;
    LOONG_TRY(jinja_binary(r, JINJA_P_MOD, call->self, by, &rest));
    LOONG_TRY(
        jinja_equal(r, rest, loongi_jinja_int(named(call, "odd")), &equal));
    return give(result, equal);
}

static loong_status_t truth_is(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    (void)r;
    return give(result, call->self.kind == JINJA_BOOL &&
                            call->self.as.truth == named(call, "true"));
}

static loong_status_t case_is(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    value_t text;
    const jinja_args_t none = {0};
    LOONG_TRY(jinja_to_text(r, call->self, &text));
    return jinja_call_row(
        r,
        jinja_find_row(
            jinja_str_questions,
            jinja_text(named(call, "upper") ? "isupper" : "islower")),
        text, &none, result);
}

static loong_status_t compares(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    static const struct {
        const char *name;
        jinja_piece_kind_t op;
    } rows[] = {
        {"==", JINJA_P_EQ},       {"eq", JINJA_P_EQ},
        {"equalto", JINJA_P_EQ},  {"!=", JINJA_P_NE},
        {"ne", JINJA_P_NE},       {">", JINJA_P_GT},
        {"gt", JINJA_P_GT},       {"greaterthan", JINJA_P_GT},
        {">=", JINJA_P_GTEQ},     {"ge", JINJA_P_GTEQ},
        {"<", JINJA_P_LT},        {"lt", JINJA_P_LT},
        {"lessthan", JINJA_P_LT}, {"<=", JINJA_P_LTEQ},
        {"le", JINJA_P_LTEQ},     {"in", JINJA_P_IN},
    };
    bool is = false;
    for (int64_t k = 0; k < LOONG_COUNT_OF(rows); k++) {
        if (named(call, rows[k].name)) {
            LOONG_TRY(
                jinja_compare(r, rows[k].op, call->self, call->arg[0], &is));
        }
    }
    return give(result, is);
}

/* The same object: what Python keeps once, and what is shared. */
static loong_status_t same_as(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    value_t a = call->self;
    value_t b = call->arg[0];
    (void)r;
    if (a.kind != b.kind) {
        return give(result, false);
    }
    return give(result, a.kind < JINJA_LIST ? jinja_same_key(a, b)
                                            : a.as.object == b.as.object);
}

static loong_status_t is_known(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    if (!jinja_hashable(call->self)) {
        return jinja_fail(r, "%s is no name", jinja_type_name(call->self));
    }
    if (call->self.kind != JINJA_STRING) {
        return give(result, false);
    }
    return give(result,
                (named(call, "test") ? jinja_find_test(call->self)
                                     : jinja_find_filter(call->self)) != NULL);
}

static loong_status_t is_escaped(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    (void)r;
    return give(result, call->self.kind == JINJA_STRING && call->self.markup);
}

const jinja_builtin_t jinja_tests[] = {{"defined", "", 0, of_kind},
                                       {"undefined", "", 0, of_kind},
                                       {"none", "", 0, of_kind},
                                       {"boolean", "", 0, of_kind},
                                       {"integer", "", 0, of_kind},
                                       {"float", "", 0, of_kind},
                                       {"number", "", 0, of_kind},
                                       {"string", "", 0, of_kind},
                                       {"mapping", "", 0, of_kind},
                                       {"sequence", "", 0, of_kind},
                                       {"callable", "", 0, of_kind},
                                       {"iterable", "", 0, of_kind},
                                       {"odd", "", 0, remainder_is},
                                       {"even", "", 0, remainder_is},
                                       {"divisibleby", "num", 1, remainder_is},
                                       {"true", "", 0, truth_is},
                                       {"false", "", 0, truth_is},
                                       {"lower", "", 0, case_is},
                                       {"upper", "", 0, case_is},
                                       {"filter", "", 0, is_known},
                                       {"test", "", 0, is_known},
                                       {"sameas", "other", 1, same_as},
                                       {"escaped", "", 0, is_escaped},
                                       {"==", "-", 1, compares},
                                       {"eq", "-", 1, compares},
                                       {"equalto", "-", 1, compares},
                                       {"!=", "-", 1, compares},
                                       {"ne", "-", 1, compares},
                                       {">", "-", 1, compares},
                                       {"gt", "-", 1, compares},
                                       {"greaterthan", "-", 1, compares},
                                       {">=", "-", 1, compares},
                                       {"ge", "-", 1, compares},
                                       {"<", "-", 1, compares},
                                       {"lt", "-", 1, compares},
                                       {"lessthan", "-", 1, compares},
                                       {"<=", "-", 1, compares},
                                       {"le", "-", 1, compares},
                                       {"in", "seq", 1, compares},
                                       {0}};

const jinja_builtin_t *jinja_find_test(value_t name)
{
    return jinja_find_row(jinja_tests, name);
}
