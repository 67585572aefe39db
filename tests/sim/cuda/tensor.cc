// SPDX-License-Identifier: Apache-2.0
//
// What the simulated device has in place of instructions that C++ cannot say:
// products of tensor cores (mma.sync m16n8k16 of bf16), ldmatrix, cp.async, and
// the products of warpgroups (wgmma m64n256k16). A copy is made when it is
// asked for, or when its thread waits for it: which is drawn, so that a missing
// wait shows, and a copy to what is still read. So it is with the products of
// warpgroups.
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

// Threads that waited for copies and did not yet make them seen by products of
// warpgroups.
static bool unseen[MOST_THREADS];
static int num_unseen;

static void forget_products();

void cudasim::forget_copies()
{
    forget_products();
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
        num_unseen += !unseen[current_thread()];
        unseen[current_thread()] = true;
    }
}

// ---- products of warpgroups -------------------------------------------------

// What one thread has of it.
struct wg_product_t {
    float *c;
    cudasim_panels a, b;
    bool add;
};

typedef std::vector<std::vector<wg_product_t>> products_t; // the last is open

static products_t products[MOST_THREADS];
static bool multiplied; // by a thread of this block

static void forget_products()
{
    for (int t = 0; multiplied && t < MOST_THREADS; t++) {
        products[t].clear();
    }
    memset(unseen, 0, sizeof(unseen));
    num_unseen = 0;
    multiplied = false;
}

extern "C" void cudasim_shared_fence(void)
{
    num_unseen -= unseen[current_thread()];
    unseen[current_thread()] = false;
}

// Element k of row (turned: column) r: the places of pieces change with the
// address.
static float element_of(const cudasim_panels &p, int r, int k)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(p.at);
    at += p.turned ? r / 64 * p.stride + k * 128 + r % 64 * 2 : r * 128 + k * 2;
    at ^= (at >> 7 & 7) << 4;
    return low(*reinterpret_cast<const unsigned short *>(at));
}

static void multiply(const wg_product_t &p, int warp, int lane)
{
    enum { COLS = 256, TERMS = 16 };
    for (int h = 0; h < 2; h++) {
        int row = warp * 16 + lane / 4 + h * 8;
        float a[TERMS];
        for (int k = 0; k < TERMS; k++) {
            a[k] = element_of(p.a, row, k);
        }
        for (int col = lane % 4 * 2; col < COLS; col += col % 2 ? 7 : 1) {
            float *c = p.c + col / 8 * 4 + h * 2 + col % 2;
            float sum = p.add ? *c : 0.0f;
            for (int k = 0; k < TERMS; k++) {
                sum += a[k] * element_of(p.b, col, k);
            }
            *c = sum;
        }
    }
}

static products_t &own_products()
{
    products_t &mine = products[current_thread()];
    multiplied = true;
    if (mine.empty()) {
        mine.emplace_back();
    }
    return mine;
}

static void together(void *const *lane) { (void)lane; }

// The rows (turned: columns) 0 .. n - 1 of it.
static void check_panels(const cudasim_panels &p, int n)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(p.at);
    size_t size = p.turned ? (n - 1) / 64 * p.stride + 15 * 128 + 128
                         : (n - 1) * 128 + 32;
    uintptr_t begin, end;
    if (at % (p.turned ? 1024 : 32) != 0 ||
        !in_shared(at, size, &begin, &end)) {
        kernel_fault(cudaErrorIllegalAddress, "wgmma: an operand that is not "
                     "in the shared arrays, or begins between its places");
    }
}

extern "C" void cudasim_wgmma(cudasim_place place, float *c, cudasim_panels a,
                              cudasim_panels b, bool add)
{
    cudasim_together(place, c, together);
    if (num_unseen > 0) {
        kernel_fault(cudaErrorIllegalAddress, "wgmma: copies of %d threads are "
                     "behind no fence", num_unseen);
    }
    check_panels(a, 64);
    check_panels(b, 256);
    own_products().back().push_back({c, a, b, add});
}

static void make_front(products_t &mine)
{
    int thread = current_thread();
    for (const wg_product_t &p : mine.front()) {
        multiply(p, thread / 32 % 4, thread % 32);
    }
    mine.erase(mine.begin());
}

extern "C" void cudasim_wgmma_commit(void)
{
    products_t &mine = own_products();
    mine.emplace_back();
    while (mine.size() > 1 && below(2) == 0) {
        make_front(mine);
    }
}

extern "C" void cudasim_wgmma_wait(int left)
{
    products_t &mine = own_products();
    while ((int)mine.size() - 1 > left) {
        make_front(mine);
    }
}
