/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes that image processors give pictures, frames and tiles, and the
 * tiles. Called by process.c, video.c and patch_processor.c. Read processor.h
 * before. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "processor.h"

/* The multiple of unit that is nearest to length, an even one of two. */
static int64_t nearest(int64_t length, int64_t unit)
{
    return (int64_t)nearbyint((double)length / (double)unit) * unit;
}

/* Of frames that the bounds are of together (Qwen3-VL's and GLM's
 * smart_resize). */
static void size_of_all(const loong_image_processor_t *p,
                        const target_t *bounds, const int64_t of[2],
                        int64_t frames, int64_t size[2])
{
    int64_t unit = p->cut.patch * p->cut.merge;
    int64_t each = LOONG_MAX(p->cut.frames, 1);
    int64_t found = nearest(frames, each);
    double side[2] = {(double)of[0], (double)of[1]};
    double least = (double)unit;
    if (side[0] < least || side[1] < least) {
        double scale = fmax(least / side[1], least / side[0]);
        side[0] = trunc(side[0] * scale);
        side[1] = trunc(side[1] * scale);
    }
    double pixels = (double)frames * side[0] * side[1];
    if (frames < each ||
        fmax(side[0], side[1]) / fmin(side[0], side[1]) > LONGEST_SIDE) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        size[i] = (int64_t)nearbyint(side[i] / least) * unit;
        found *= size[i];
    }
    for (int i = 0; i < 2; i++) {
        if (found > bounds->max_pixels) {
            double beta = sqrt(pixels / (double)bounds->max_pixels);
            int64_t units = (int64_t)floor(side[i] / beta / least);
            size[i] = LOONG_MAX(units, 1) * unit;
        } else if (found < bounds->min_pixels) {
            double beta = sqrt((double)bounds->min_pixels / pixels);
            size[i] = (int64_t)ceil(side[i] * beta / least) * unit;
        }
    }
}

void loongi_bounded_size(const loong_image_processor_t *p,
                         const target_t *bounds, const int64_t of[2],
                         int64_t frames, int64_t size[2])
{
    const target_t *n = bounds;
    int64_t width = of[0];
    int64_t height = of[1];
    int64_t unit = p->cut.patch * p->cut.merge;
    double pixels = (double)width * (double)height;
    size[0] = size[1] = 0;
    if (p->bounds_all && LOONG_MIN(width, height) > 0) {
        size_of_all(p, bounds, of, frames, size);
        return;
    }
    if (LOONG_MIN(width, height) < 1 ||
        (double)LOONG_MAX(width, height) / (double)LOONG_MIN(width, height) >
            LONGEST_SIDE) {
        return;
    }
    int64_t found = nearest(width, unit) * nearest(height, unit);
    for (int i = 0; i < 2; i++) {
        double side = (double)of[i];
        if (found > n->max_pixels) {
            double beta = sqrt(pixels / (double)n->max_pixels);
            int64_t units = (int64_t)floor(side / beta / (double)unit);
            size[i] = LOONG_MAX(units, 1) * unit;
        } else if (found < n->min_pixels) {
            double beta = sqrt((double)n->min_pixels / pixels);
            size[i] = (int64_t)ceil(side * beta / (double)unit) * unit;
        } else {
            size[i] = nearest(of[i], unit);
        }
    }
}

/* Kimi's navit_resize, which never enlarges. */
void loongi_seen_size(const loong_image_processor_t *p, int64_t width,
                      int64_t height, int64_t size[2])
{
    const int64_t of[2] = {width, height};
    int64_t patch = p->cut.patch;
    int64_t most = p->size.side_patches * patch;
    int64_t patches =
        LOONG_MAX(width / patch, 1) * LOONG_MAX(height / patch, 1);
    double scale =
        fmin(1.0, sqrt((double)p->size.all_patches / (double)patches));
    for (int i = 1; i >= 0; i--) {
        scale = fmin(scale, (double)most / (double)of[i]);
    }
    for (int i = 0; i < 2; i++) {
        int64_t side = (int64_t)((double)of[i] * scale);
        size[i] = LOONG_MIN(LOONG_MAX(side, 1), most);
    }
}

/* NaFlex (Tschannen et al. 2025): the largest scale that a bisection finds at
 * which sides of whole blocks, rounded up, have no more patches. */
static void size_of_patches(const loong_image_processor_t *p,
                            const loong_patch_cut_t *cut, const int64_t of[2],
                            int64_t size[2])
{
    int64_t patch = p->cut.patch > 0 ? p->cut.patch : cut->patch;
    int64_t merge = p->cut.merge > 0 ? p->cut.merge : cut->merge;
    patch = LOONG_MAX(patch, 1);
    int64_t unit = patch * LOONG_MAX(merge, 1);
    double low = 1e-6, high = 100.0;
    for (bool found = false; !found;) {
        found = high - low < 1e-5;
        double scale = found ? low : (low + high) / 2.0;
        for (int i = 0; i < 2; i++) {
            double blocks = ceil((double)of[i] * scale / (double)unit);
            size[i] = LOONG_MAX((int64_t)blocks, 1) * unit;
        }
        bool fits = (size[0] / patch) * (size[1] / patch) <=
                    p->size.max_patches;
        *(fits ? &low : &high) = scale;
    }
}

/* The multiple of unit that is nearest to length, at least one. */
static int64_t some_of(double length, int64_t unit)
{
    return LOONG_MAX((int64_t)nearbyint(length / (double)unit), 1) * unit;
}

/* MiniCPM-V's find_best_resize: as many pixels as a slice where it has more, or
 * is to be enlarged. */
static void size_of_slice(const loong_image_processor_t *p, double width,
                          double height, bool enlarge, int64_t size[2])
{
    double side = (double)p->size.slice;
    int64_t unit = p->cut.patch * p->cut.merge;
    if (enlarge || width * height > side * side) {
        double ratio = width / height;
        height = trunc(side / sqrt(ratio));
        width = trunc(height * ratio);
    }
    size[0] = some_of(width, unit);
    size[1] = some_of(height, unit);
}

void loongi_slice_size(const loong_image_processor_t *p,
                       const loong_image_tiles_t *slices, int64_t width,
                       int64_t height, int64_t size[2])
{
    double columns = (double)slices->columns, rows = (double)slices->rows;
    size_of_slice(p, (double)some_of((double)width, slices->columns) / columns,
                  (double)some_of((double)height, slices->rows) / rows, true,
                  size);
}

/* About as many as slices cover the picture, one more or less, whose sides are
 * most like its own; of several the one with most rows. */
static loong_image_tiles_t slices_of(const loong_image_processor_t *p,
                                     int64_t width, int64_t height)
{
    double area = (double)p->size.slice * (double)p->size.slice;
    double share = ceil((double)width * (double)height / area);
    double ratio = log((double)width / (double)height);
    int64_t most = p->tile ? p->max_tiles : 1;
    int64_t wanted = share < (double)most ? (int64_t)share : most;
    loong_image_tiles_t tiles = {1, 1, 1, false};
    double least = INFINITY;
    for (int64_t n = LOONG_MAX(wanted - 1, 2); n <= LOONG_MIN(wanted + 1, most)
         && wanted > 1; n++) {
        for (int64_t rows = 1; rows <= n; rows++) {
            int64_t columns = n / rows;
            double far = fabs(ratio - log((double)columns / (double)rows));
            if (columns * rows == n &&
                (far < least || (far == least && rows > tiles.rows))) {
                least = far;
                tiles = (loong_image_tiles_t){columns, rows, n + 1, true};
            }
        }
    }
    return tiles;
}

/* The longer edge is rounded down. */
void loongi_resized_size(const loong_image_processor_t *p,
                         const loong_patch_cut_t *cut, int64_t width,
                         int64_t height, int64_t size[2])
{
    const int64_t of[] = {width, height};
    int64_t edge = p->size.edge;
    bool high = width <= height;
    if (!p->resize) {
        memcpy(size, of, sizeof(of));
    } else if (loongi_processor_is_sliced(p)) {
        size_of_slice(p, (double)width, (double)height,
                      slices_of(p, width, height).count == 1, size);
    } else if (p->size.max_patches > 0) {
        size_of_patches(p, cut, of, size);
    } else if (loongi_processor_is_bounded(p)) {
        loongi_bounded_size(p, &p->size, of, LOONG_MAX(p->cut.frames, 1), size);
    } else if (loongi_processor_is_padded(p)) {
        int64_t unit = p->cut.patch * p->cut.merge;
        loongi_seen_size(p, width, height, size);
        size[0] = loongi_round_up(size[0], unit);
        size[1] = loongi_round_up(size[1], unit);
    } else {
        size[0] = edge == 0 ? p->size.width
                  : high    ? edge
                            : edge * width / height;
        size[1] = edge == 0 ? p->size.height
                  : high    ? edge * height / width
                            : edge;
    }
}

bool loong_image_processor_is_sliced(const loong_image_processor_t *processor)
{
    return loongi_processor_is_sliced(processor);
}

void loong_image_processor_limit_tiles(loong_image_processor_t *processor,
                                       int64_t most)
{
    processor->max_tiles = most > 0 ? most : processor->max_tiles;
}

int64_t
loong_image_processor_max_tiles(const loong_image_processor_t *processor)
{
    const grids_t *grids = &processor->grids;
    bool several = processor->tile && processor->max_tiles > 1;
    int64_t most = several ? processor->max_tiles + processor->thumbnail : 1;
    for (int64_t k = 0; k < grids->count; k++) {
        most = LOONG_MAX(most, grids->of[k][0] * grids->of[k][1] + 1);
    }
    return most;
}

/* Those of whole tiles; by default all of one to six tiles a side. */
loong_status_t loongi_settle_grids(const char *path, loong_image_processor_t *p)
{
    enum { SIDES = 6 };
    grids_t *grids = &p->grids;
    int64_t tile[2] = {p->size.height, p->size.width};
    LOONG_CHECK(p->ctx, !p->is_gridded || (p->resize && tile[0] == tile[1]),
                LOONG_ERR_UNSUPPORTED,
                "%s: do_resize to a square is needed for tiles", path);
    for (int32_t k = 0; p->is_gridded && grids->count == 0 && k < SIDES * SIDES;
         k++) {
        grids->of[k][0] = (int32_t)tile[0] * (k / SIDES + 1);
        grids->of[k][1] = (int32_t)tile[1] * (k % SIDES + 1);
    }
    grids->count = p->is_gridded && grids->count == 0 ? SIDES * SIDES
                                                      : grids->count;
    for (int64_t k = 0; k < 2 * grids->count; k++) {
        int32_t *side = &grids->of[k / 2][k % 2];
        LOONG_CHECK(p->ctx, *side % tile[k % 2] == 0, LOONG_ERR_UNSUPPORTED,
                    "%s: image_grid_pinpoints: %d is no multiple of size "
                    "%" PRId64,
                    path, *side, tile[k % 2]);
        *side /= (int32_t)tile[k % 2];
    }
    return LOONG_OK;
}

/* A processor of videos may have bounds of the file of its pictures, one of
 * them its own class's. */
static loong_status_t check_bounds(const char *path,
                                   const loong_image_processor_t *p)
{
    const target_t *size = &p->size;
    bool videos = p->video.form != LOONG_VIDEO_NONE;
    LOONG_CHECK(p->ctx,
                videos || size->max_pixels == 0 ||
                    size->min_pixels <= size->max_pixels,
                LOONG_ERR_FORMAT,
                "%s: at least %" PRId64 " pixels (size.shortest_edge or "
                "min_pixels) and at most %" PRId64 " (size.longest_edge or "
                "max_pixels): no picture is between them",
                path, size->min_pixels, size->max_pixels);
    LOONG_CHECK(p->ctx,
                videos || loongi_processor_is_padded(p) ||
                    p->min_tiles <= p->max_tiles,
                LOONG_ERR_FORMAT,
                "%s: at least %" PRId64 " tiles (min_patches) and at most "
                "%" PRId64 " (max_patches): no number is between them",
                path, p->min_tiles, p->max_tiles);
    return LOONG_OK;
}

loong_status_t loongi_settle_processor(const char *path,
                                       loong_image_processor_t *p)
{
    if (p->video.multiple > 0) { /* patches of so many frames are merged */
        LOONG_CHECK(p->ctx, p->cut.frames <= p->video.multiple,
                    LOONG_ERR_FORMAT,
                    "%s: temporal_patch_size is not %" PRId64, path,
                    p->video.multiple);
        p->cut.frames = 1;
    }
    LOONG_TRY(check_bounds(path, p));
    if (loongi_processor_is_padded(p)) {
        p->size.all_patches = p->max_tiles;
        p->cut.chunk = p->cut.frames;
        p->cut.frames = 1;
    }
    return loongi_settle_grids(path, p);
}

/* That in which the picture is largest, of several the smallest. */
static loong_image_tiles_t tiles_of_grid(const loong_image_processor_t *p,
                                         int64_t width, int64_t height)
{
    const grids_t *grids = &p->grids;
    const int64_t w = width, h = height;
    loong_image_tiles_t tiles = {1, 1, 1, true};
    int64_t most = 0, waste = INT64_MAX;
    for (int64_t k = 0; k < grids->count; k++) {
        int64_t rows = grids->of[k][0], columns = grids->of[k][1];
        int64_t to[2] = {columns * p->size.width, rows * p->size.height};
        double scale =
            fmin((double)to[0] / (double)w, (double)to[1] / (double)h);
        int64_t scaled =
            (int64_t)((double)w * scale) * (int64_t)((double)h * scale);
        int64_t seen = LOONG_MIN(scaled, w * h);
        int64_t wasted = to[0] * to[1] - seen;
        if (seen > most || (seen == most && wasted < waste)) {
            most = seen;
            waste = wasted;
            tiles = (loong_image_tiles_t){columns, rows, rows * columns + 1,
                                          true};
        }
    }
    return tiles;
}

/* The grid whose sides are most like those of the picture; of several the
 * largest that is not more than twice as large as the picture. */
loong_image_tiles_t
loong_image_processor_tiles(const loong_image_processor_t *processor,
                            int64_t width, int64_t height, bool several)
{
    const loong_image_processor_t *p = processor;
    loong_image_tiles_t tiles = {1, 1, 1, p->is_gridded};
    if (p->is_gridded) {
        return several ? tiles : tiles_of_grid(p, width, height);
    }
    if (loongi_processor_is_sliced(p)) {
        return slices_of(p, width, height);
    }
    double tile = (double)p->size.width * (double)p->size.height;
    double area = (double)width * (double)height;
    double ratio = (double)width / (double)height;
    double least = INFINITY;
    bool cuts = loong_image_processor_max_tiles(p) > 1;
    for (int64_t n = p->min_tiles; cuts && n <= p->max_tiles; n++) {
        for (int64_t columns = 1; columns <= n; columns++) {
            int64_t rows = n / columns;
            double far = fabs(ratio - (double)columns / (double)rows);
            if (columns * rows == n &&
                (far < least ||
                 (far == least && area > 0.5 * tile * (double)n))) {
                least = far;
                tiles = (loong_image_tiles_t){columns, rows, n, false};
            }
        }
    }
    tiles.count += tiles.count > 1 && p->thumbnail ? 1 : 0;
    return tiles;
}

void loongi_processor_size(const loong_image_processor_t *p,
                           const loong_patch_cut_t *cut, int64_t width,
                           int64_t height, int64_t size[2])
{
    if (p->crop) {
        size[0] = p->crop_size.width;
        size[1] = p->crop_size.height;
    } else {
        loongi_resized_size(p, cut, width, height, size);
    }
}

void loong_image_processor_size(const loong_image_processor_t *processor,
                                int64_t width, int64_t height,
                                int64_t *width_p, int64_t *height_p)
{
    int64_t size[2];
    loongi_processor_size(processor, &processor->cut, width, height, size);
    *width_p = size[0];
    *height_p = size[1];
}

static bool has_bounds(const loong_image_processor_t *p)
{
    return p != NULL && p->size.max_pixels > 0;
}

loong_status_t loongi_processor_check_narrow(loong_context_t *ctx,
                                             const loong_image_processor_t *p,
                                             const char *name, int64_t width,
                                             int64_t height)
{
    int64_t size[2] = {1, 1};
    if (has_bounds(p)) {
        loongi_processor_size(p, &p->cut, width, height, size);
    }
    LOONG_CHECK(ctx, size[0] > 0, LOONG_ERR_FORMAT,
                "%s: is %" PRId64 " x %" PRId64 " pixels, longer and narrower "
                "than the image processor takes: one side may be up to %d "
                "times the other",
                name, width, height, LONGEST_SIDE);
    return LOONG_OK;
}

int64_t loongi_processor_narrowest(const loong_image_processor_t *p)
{
    return !has_bounds(p)  ? 0
           : p->bounds_all ? p->cut.patch * p->cut.merge
                           : 1;
}
