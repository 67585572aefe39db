/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows HDF5. Called by native_save.c, native_commit.c,
 * native_write.c and native_load.c. Read native_h5.h before. */
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native_h5.h"

/* The library keeps its state per process, so the lock is one per process. */
static pthread_mutex_t h5_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock(void)
{
    pthread_mutex_lock(&h5_lock);
    /* A file that could not be finished (full disk) stays open inside HDF5,
     * which would try again, and crash, while the process exits. Every other
     * file is closed by us. */
    H5dont_atexit();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* errors are ours to report */
}

static void unlock(void)
{
    pthread_mutex_unlock(&h5_lock);
}

/* The innermost entry of HDF5's error stack is the cause. */
static herr_t take_cause(unsigned n, const H5E_error2_t *error, void *user)
{
    (void)n;
    snprintf(user, 160, "%s", error->desc);
    return 0;
}

static loong_status_t fail_h5(loong_context_t *ctx, const char *verb,
                              const char *path, const char *object)
{
    char cause[160] = "unknown reason";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_cause, cause);
    H5Eclear2(H5E_DEFAULT);
    return LOONG_FAIL(ctx, LOONG_ERR_IO, "HDF5 cannot %s '%s'%s%s: %s", verb,
                      path, object[0] != '\0' ? " " : "", object, cause);
}

/* A new handle, to be closed with H5Tclose. bf16 is described by its fields:
 * readers such as h5py convert it to float32. */
static hid_t file_type(loong_dtype_t dtype)
{
    static const signed char no = 0;
    static const signed char yes = 1;
    hid_t type = H5I_INVALID_HID;
    switch (dtype) {
    case LOONG_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case LOONG_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case LOONG_BF16:
        type = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(type, 15, 7, 8, 0, 7);
        H5Tset_precision(type, 16);
        H5Tset_size(type, 2);
        return type;
    case LOONG_F16:
        type = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(type, 15, 10, 5, 0, 10);
        H5Tset_precision(type, 16);
        H5Tset_size(type, 2);
        H5Tset_ebias(type, 15);
        return type;
    case LOONG_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case LOONG_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case LOONG_I16:
        return H5Tcopy(H5T_STD_I16LE);
    case LOONG_I8:
        return H5Tcopy(H5T_STD_I8LE);
    case LOONG_U16:
        return H5Tcopy(H5T_STD_U16LE);
    case LOONG_U8:
        return H5Tcopy(H5T_STD_U8LE);
    default: /* as h5py writes a boolean */
        type = H5Tenum_create(H5T_STD_I8LE);
        H5Tenum_insert(type, "FALSE", &no);
        H5Tenum_insert(type, "TRUE", &yes);
        return type;
    }
}

static hid_t shape_space(int ndim, const int64_t *shape)
{
    hsize_t dims[LOONG_TENSOR_MAX_DIMS];
    for (int d = 0; d < ndim; d++) {
        dims[d] = (hsize_t)shape[d];
    }
    return ndim == 0 ? H5Screate(H5S_SCALAR)
                     : H5Screate_simple(ndim, dims, NULL);
}

/* Asks the disk for the space a file will take, data included, and gives it
 * back: HDF5 cannot let go of a file whose metadata does not fit, so a full
 * disk must be met here. Measured: 0.7 KB for each object, and up to 4 KB to
 * align it. `extra` counts data and texts. */
enum { FILE_SPACE = 16384, OBJECT_SPACE = 6144 };

static loong_status_t claim_space(loong_context_t *ctx, const char *path,
                                  int64_t objects, int64_t extra)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_IO, "cannot create '%s': %s", path,
                strerror(errno));
    int64_t bytes = FILE_SPACE + OBJECT_SPACE * objects + extra;
    int code = posix_fallocate(fd, 0, bytes);
    close(fd);
    LOONG_CHECK(ctx, code == 0 || code == EOPNOTSUPP || code == EINVAL,
                LOONG_ERR_IO, "cannot write '%s' (%" PRId64 " bytes): %s", path,
                bytes, strerror(code));
    return LOONG_OK;
}

static hid_t create_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* Formats with checksums on metadata, also what virtual datasets need. */
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_file_locking(access, false, true);
    H5Pset_alignment(access, 65536, 4096);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    return file;
}

static hid_t open_file(const char *path)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(access, false, true);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    return file;
}

/* Links create the groups on the way. */
static hid_t create_dataset(hid_t file, const char *name, loong_dtype_t dtype,
                            hid_t space, hid_t creation)
{
    hid_t link = H5Pcreate(H5P_LINK_CREATE);
    hid_t type = file_type(dtype);
    H5Pset_create_intermediate_group(link, 1);
    hid_t dataset =
        H5Dcreate2(file, name, type, space, link, creation, H5P_DEFAULT);
    H5Tclose(type);
    H5Pclose(link);
    return dataset;
}

static bool create_piece(hid_t file, loong_layout_piece_t *piece)
{
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = shape_space(piece->tensor.ndim, piece->count);
    H5Pset_layout(creation, H5D_CONTIGUOUS);
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    hid_t dataset = create_dataset(file, piece->dataset, piece->tensor.dtype,
                                   space, creation);
    haddr_t offset = HADDR_UNDEF;
    if (dataset >= 0) {
        offset = H5Dget_offset(dataset);
        H5Dclose(dataset);
    }
    H5Sclose(space);
    H5Pclose(creation);
    piece->offset = (int64_t)offset;
    return offset != HADDR_UNDEF;
}

loong_status_t loongi_h5_create_rank(loong_context_t *ctx, const char *path,
                                     loong_layout_piece_t *pieces,
                                     int64_t count, bool sparse)
{
    loong_status_t status = LOONG_OK;
    int64_t bytes = 0;
    for (int64_t i = 0; i < count && !sparse; i++) {
        const loong_layout_piece_t *p = &pieces[i];
        bytes += loongi_shape_count(p->tensor.ndim, p->count) *
                 (int64_t)loong_dtype_size(p->tensor.dtype);
    }
    LOONG_TRY(claim_space(ctx, path, count, bytes));
    lock();
    hid_t file = create_file(path);
    if (file < 0) {
        status = fail_h5(ctx, "create", path, "");
    }
    for (int64_t i = 0; i < count && status == LOONG_OK; i++) {
        if (!create_piece(file, &pieces[i])) {
            status = fail_h5(ctx, "write", path, pieces[i].dataset);
        }
    }
    if (file >= 0 && H5Fclose(file) < 0 && status == LOONG_OK) {
        status = fail_h5(ctx, "finish", path, "");
    }
    unlock();
    return status;
}

/* ---- the index ---- */

static bool write_text(hid_t file, const char *key, const char *value)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    hid_t link = H5Pcreate(H5P_LINK_CREATE);
    hid_t space = H5Screate(H5S_SCALAR);
    char path[256];
    int length = snprintf(path, sizeof(path), "/metadata/%s", key);
    H5Tset_size(type, strlen(value) + 1);
    H5Tset_cset(type, H5T_CSET_UTF8);
    H5Pset_create_intermediate_group(link, 1);
    hid_t dataset =
        H5Dcreate2(file, path, type, space, link, H5P_DEFAULT, H5P_DEFAULT);
    bool good =
        length < (int)sizeof(path) && dataset >= 0 &&
        H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0;
    if (dataset >= 0) {
        good = H5Dclose(dataset) >= 0 && good;
    }
    H5Sclose(space);
    H5Pclose(link);
    H5Tclose(type);
    return good;
}

static bool write_int(hid_t file, const char *name, int64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t attribute =
        H5Acreate2(file, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good =
        attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_INT64, &value) >= 0;
    if (attribute >= 0) {
        H5Aclose(attribute);
    }
    H5Sclose(space);
    return good;
}

static void select_piece(hid_t space, const loong_layout_piece_t *piece)
{
    hsize_t begin[LOONG_TENSOR_MAX_DIMS], count[LOONG_TENSOR_MAX_DIMS];
    for (int d = 0; d < piece->tensor.ndim; d++) {
        begin[d] = (hsize_t)piece->begin[d];
        count[d] = (hsize_t)piece->count[d];
    }
    if (piece->tensor.ndim > 0) {
        H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL);
    }
}

static void tensor_path(const loong_checkpoint_tensor_t *tensor,
                        loong_text_t *path)
{
    loongi_text_printf(path, "/%s/%s", tensor->kind, tensor->name);
}

static bool write_virtual(hid_t file, const loong_layout_t *layout,
                          const loong_layout_tensor_t *t, const char *path)
{
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = shape_space(t->tensor.ndim, t->tensor.shape);
    bool good = true;
    for (int64_t i = 0; i < t->count; i++) {
        const loong_layout_piece_t *piece = &t->pieces[i];
        hid_t source = shape_space(piece->tensor.ndim, piece->count);
        select_piece(space, piece);
        good = H5Pset_virtual(creation, space, layout->files[piece->file].name,
                              piece->dataset, source) >= 0 &&
               good;
        H5Sclose(source);
    }
    H5Sselect_all(space);
    hid_t dataset =
        create_dataset(file, path, t->tensor.dtype, space, creation);
    good = dataset >= 0 && H5Dclose(dataset) >= 0 && good;
    H5Sclose(space);
    H5Pclose(creation);
    return good;
}

static loong_status_t fill_index(loong_context_t *ctx, const char *path,
                                 hid_t file, const loong_layout_t *layout,
                                 const loong_pairs_t *metadata)
{
    for (int64_t i = 0; metadata != NULL && i < metadata->count; i++) {
        const loong_pair_t *pair = &metadata->items[i];
        if (!write_text(file, pair->key, pair->value)) {
            return fail_h5(ctx, "write", path, pair->key);
        }
    }
    for (int64_t t = 0; t < layout->tensor_count; t++) {
        loong_text_t name = loongi_text_begin(ctx);
        tensor_path(&layout->tensors[t].tensor, &name);
        loong_status_t status = name.status;
        if (status == LOONG_OK &&
            !write_virtual(file, layout, &layout->tensors[t], name.data)) {
            status = fail_h5(ctx, "write", path, name.data);
        }
        loongi_text_free(&name);
        LOONG_TRY(status);
    }
    return LOONG_OK;
}

loong_status_t loongi_h5_create_index(loong_context_t *ctx, const char *path,
                                      const loong_layout_t *layout,
                                      int64_t step,
                                      const loong_pairs_t *metadata)
{
    loong_status_t status = LOONG_OK;
    int64_t texts = 0;
    int64_t bytes = 0;
    for (; metadata != NULL && texts < metadata->count; texts++) {
        bytes += (int64_t)strlen(metadata->items[texts].value);
    }
    LOONG_TRY(claim_space(ctx, path, layout->piece_count + texts, bytes));
    lock();
    hid_t file = create_file(path);
    if (file < 0 || !write_int(file, "step", step)) {
        status = fail_h5(ctx, "create", path, "");
    } else {
        status = fill_index(ctx, path, file, layout, metadata);
    }
    if (file >= 0 && H5Fclose(file) < 0 && status == LOONG_OK) {
        status = fail_h5(ctx, "finish", path, "");
    }
    unlock();
    return status;
}

/* ---- verification ---- */

static bool same_dataset(hid_t file, const char *path,
                         const loong_checkpoint_tensor_t *tensor,
                         const int64_t *shape, int64_t offset)
{
    bool same = false;
    hsize_t dims[H5S_MAX_RANK];
    hid_t dataset = H5Dopen2(file, path, H5P_DEFAULT);
    if (dataset < 0) {
        return false;
    }
    hid_t space = H5Dget_space(dataset);
    hid_t found = H5Dget_type(dataset);
    hid_t type = file_type(tensor->dtype);
    same = H5Tequal(found, type) > 0 &&
           H5Sget_simple_extent_dims(space, dims, NULL) == tensor->ndim;
    for (int d = 0; same && d < tensor->ndim; d++) {
        same = dims[d] == (hsize_t)shape[d];
    }
    same = same && (offset < 0 || H5Dget_offset(dataset) == (haddr_t)offset);
    H5Tclose(type);
    H5Tclose(found);
    H5Sclose(space);
    H5Dclose(dataset);
    return same;
}

static void check_index(hid_t file, const loong_layout_t *layout,
                        loong_problems_t *problems)
{
    for (int64_t t = 0; t < layout->tensor_count; t++) {
        const loong_checkpoint_tensor_t *tensor = &layout->tensors[t].tensor;
        loong_text_t path = loongi_text_begin(layout->ctx);
        tensor_path(tensor, &path);
        if (!same_dataset(file, loongi_text_get(&path), tensor, tensor->shape,
                          -1)) {
            loongi_problems_add(problems, "index.h5 has another %s",
                                loongi_text_get(&path));
        }
        loongi_text_free(&path);
    }
}

static int by_file(const void *a, const void *b)
{
    const loong_layout_piece_t *const *x = a;
    const loong_layout_piece_t *const *y = b;
    return ((*x)->file > (*y)->file) - ((*x)->file < (*y)->file);
}

/* All pieces, file by file. */
static loong_status_t
list_by_file(loong_layout_t *layout, const char *dir,
             const loong_layout_piece_t ***list_p, int64_t *count_p)
{
    int64_t count = 0;
    for (int64_t t = 0; t < layout->tensor_count; t++) {
        LOONG_TRY(loongi_layout_load(layout, t, dir));
        count += layout->tensors[t].count;
    }
    LOONG_TRY(loongi_calloc(layout->ctx, (size_t)count + 1, sizeof(**list_p),
                            "pieces by file", list_p));
    *count_p = count;
    count = 0;
    for (int64_t t = 0; t < layout->tensor_count; t++) {
        for (int64_t i = 0; i < layout->tensors[t].count; i++) {
            (*list_p)[count++] = &layout->tensors[t].pieces[i];
        }
    }
    qsort(*list_p, (size_t)count, sizeof(**list_p), by_file);
    return LOONG_OK;
}

static hid_t open_in(loong_context_t *ctx, const char *dir, const char *name,
                     loong_problems_t *problems)
{
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/%s", dir, name);
    hid_t file = open_file(loongi_text_get(&path));
    loongi_text_free(&path);
    if (file < 0) {
        loongi_problems_add(problems, "%s is not an HDF5 file", name);
    }
    return file;
}

/* The pieces of one file. Returns how many there are. */
static int64_t check_rank_file(const char *dir, const loong_layout_t *layout,
                               const loong_layout_piece_t **list,
                               int64_t count, loong_problems_t *problems)
{
    const char *name = layout->files[list[0]->file].name;
    hid_t file = open_in(layout->ctx, dir, name, problems);
    int64_t i = 0;
    for (; i < count && list[i]->file == list[0]->file; i++) {
        if (file >= 0 &&
            !same_dataset(file, list[i]->dataset, &list[i]->tensor,
                          list[i]->count, list[i]->offset)) {
            loongi_problems_add(problems, "%s has another %s", name,
                                list[i]->dataset);
        }
    }
    if (file >= 0) {
        H5Fclose(file);
    }
    return i;
}

loong_status_t loongi_h5_check(loong_context_t *ctx, const char *dir,
                               loong_layout_t *layout, bool pieces)
{
    const loong_layout_piece_t **list = NULL;
    int64_t count = 0;
    if (pieces) {
        LOONG_TRY(list_by_file(layout, dir, &list, &count));
    }
    loong_problems_t problems = loongi_problems_begin(ctx);
    lock();
    for (int64_t i = 0; i < count;) {
        i += check_rank_file(dir, layout, list + i, count - i, &problems);
    }
    hid_t index = open_in(ctx, dir, "index.h5", &problems);
    if (index >= 0) {
        check_index(index, layout, &problems);
        H5Fclose(index);
    }
    unlock();
    loongi_free(ctx, list);
    return loongi_problems_end(&problems, LOONG_ERR_FORMAT, dir);
}

const char *loongi_h5_version(char *text, size_t size)
{
    unsigned v[3] = {0, 0, 0};
    lock();
    (void)H5get_libversion(&v[0], &v[1], &v[2]);
    unlock();
    snprintf(text, size, "%u.%u.%u", v[0], v[1], v[2]);
    return text;
}
