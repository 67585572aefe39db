// SPDX-License-Identifier: Apache-2.0
//
// What the simulated device has in place of instructions that C++ cannot say:
// products of tensor cores (mma.sync m16n8k16 of bf16), ldmatrix, cp.async. A
// copy is made when it is asked for, or when its thread waits for it: which is
// drawn, so that a missing wait shows, and a copy to what is still read.
#include <cstring>
#include <vector>

#include "engine.h"

using namespace cudasim;

// 16 bytes of a shared array.
static bool in_array(uintptr_t at)
{
    uintptr_t begin, end;
    return in_shared(at, 16, &begin, &end);
}

// ---- products ---------------------------------------------------------------

struct product_t {
    float *c;
    const unsigned *a, *b;
};

static float low(unsigned x) { return cudasim_bits<float>(x << 16); }
static float high(unsigned x) { return cudasim_bits<float>(x & 0xffff0000u); }

// Where the registers of a lane stand in a [16,16], b [16,8], c [16,8].
static void multiply(void *const *lane)
{
    float a[16][16], b[16][8], c[16][8];
    for (int l = 0; l < 32; l++) {
        const product_t *p = static_cast<const product_t *>(lane[l]);
        int row = l / 4;
        int col = l % 4 * 2;
        for (int r = 0; r < 4; r++) {
            float *to = &a[row + r % 2 * 8][col + r / 2 * 8];
            to[0] = low(p->a[r]);
            to[1] = high(p->a[r]);
            c[row + r / 2 * 8][col + r % 2] = p->c[r];
        }
        for (int r = 0; r < 2; r++) {
            b[col + r * 8][row] = low(p->b[r]);
            b[col + r * 8 + 1][row] = high(p->b[r]);
        }
    }
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 16; k++) {
            for (int j = 0; j < 8; j++) {
                c[i][j] += a[i][k] * b[k][j];
            }
        }
    }
    for (int l = 0; l < 32; l++) {
        const product_t *p = static_cast<const product_t *>(lane[l]);
        for (int r = 0; r < 4; r++) {
            p->c[r] = c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
        }
    }
}

extern "C" void cudasim_mma(cudasim_place place, float *c, const unsigned *a,
                            const unsigned *b)
{
    product_t p = {c, a, b};
    cudasim_together(place, &p, multiply);
}

// ---- ldmatrix ---------------------------------------------------------------

struct matrices_t {
    unsigned *to;
    const void *row;
    bool turned;
};

static unsigned short element(void *const *lane, int matrix, int row, int col)
{
    const matrices_t *m = static_cast<const matrices_t *>(lane[matrix * 8 +
                                                                row]);
    return static_cast<const unsigned short *>(m->row)[col];
}

static void load_matrices(void *const *lane)
{
    for (int l = 0; l < 32; l++) {
        const matrices_t *m = static_cast<const matrices_t *>(lane[l]);
        uintptr_t at = reinterpret_cast<uintptr_t>(m->row);
        if (at % 16 != 0 || !in_array(at)) {
            kernel_fault(cudaErrorIllegalAddress,
                         "ldmatrix: the row of lane %d is %s", l,
                         at % 16 != 0 ? "at no multiple of 16 bytes"
                                      : "outside of the shared arrays");
        }
    }
    for (int l = 0; l < 32; l++) {
        const matrices_t *m = static_cast<const matrices_t *>(lane[l]);
        for (int k = 0; k < 4; k++) {
            int row = m->turned ? l % 4 * 2 : l / 4;
            int col = m->turned ? l / 4 : l % 4 * 2;
            unsigned first = element(lane, k, row, col);
            unsigned second = m->turned ? element(lane, k, row + 1, col)
                                        : element(lane, k, row, col + 1);
            m->to[k] = first | second << 16;
        }
    }
}

extern "C" void cudasim_ldmatrix(cudasim_place place, unsigned *to,
                                 const void *row, bool turned)
{
    matrices_t m = {to, row, turned};
    cudasim_together(place, &m, load_matrices);
}

// ---- copies -----------------------------------------------------------------

struct copy_t {
    void *to;
    const void *from;
    size_t there; // of 16 bytes; the others become zero
};

typedef std::vector<std::vector<copy_t>> groups_t; // the last one is open

static groups_t copies[MOST_THREADS];
static bool copied; // by a thread of this block

void cudasim::forget_copies()
{
    for (groups_t &groups : copies) {
        if (!copied) {
            break;
        }
        groups.clear();
    }
    copied = false;
}

static void make(const copy_t &c)
{
    unsigned char bytes[16] = {0};
    memcpy(bytes, c.from, c.there);
    memcpy(c.to, bytes, 16);
}

static groups_t &own_groups()
{
    groups_t &groups = copies[current_thread()];
    copied = true;
    if (groups.empty()) {
        groups.emplace_back();
    }
    return groups;
}

extern "C" void cudasim_copy_async(void *to, const void *from, size_t there)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(to);
    if (at % 16 != 0 || !in_array(at)) {
        kernel_fault(cudaErrorIllegalAddress, "cp.async: to no 16 bytes of a "
                     "shared array");
    }
    if (there > 0) {
        check_read(from, there);
    }
    copy_t c = {to, from, there};
    if (below(2) == 0) {
        make(c);
    } else {
        own_groups().back().push_back(c);
    }
}

extern "C" void cudasim_copies_commit(void)
{
    own_groups().emplace_back();
}

extern "C" void cudasim_copies_wait(int left)
{
    groups_t &groups = own_groups();
    while ((int)groups.size() - 1 > left) {
        for (const copy_t &c : groups.front()) {
            make(c);
        }
        groups.erase(groups.begin());
    }
}
