/* tensorboard.c - an events file, as tensorboard/compat/proto/event.proto describes it and
 * tensorflow/core/lib/io/record_writer.h frames it.
 *
 * Record: u64 length, u32 masked crc of those 8 bytes, data, u32 masked crc of data, little-endian.
 * Event: 1 wall_time double, 2 step int64, 3 file_version string, 5 summary message.
 * Summary: 1 value message, repeated. Value: 1 tag string, 2 simple_value float, 8 tensor message,
 * 9 metadata message. Metadata: 1 plugin_data message, whose 1 is the plugin's name; 4 data_class.
 * Tensor: 1 dtype, 2 shape message with a dim message 2, whose 1 is its size; 8 string_val bytes,
 * repeated. */
#include "estimator/base/alloc.h"
#include "runtime/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_TAG   96
#define MAX_TEXT  16384
#define MAX_EVENT (MAX_TAG + MAX_TEXT + 128)

struct pl_tensorboard {
    FILE *file;
    char *path;
};

/* --- bytes ----------------------------------------------------------------------------------- */

struct bytes {
    unsigned char data[MAX_EVENT];
    size_t n;
};

static void put_byte(struct bytes *b, unsigned v) {
    if (b->n < sizeof b->data) b->data[b->n++] = (unsigned char)v;
}

static void put_fixed(struct bytes *b, uint64_t v, int n_bytes) {
    for (int i = 0; i < n_bytes; i++)
        put_byte(b, (unsigned)(v >> (8 * i)) & 0xff);
}

/* Protocol buffers, "Base 128 Varints": seven bits a byte, low ones first. */
static void put_varint(struct bytes *b, uint64_t v) {
    for (; v >= 0x80; v >>= 7)
        put_byte(b, ((unsigned)v & 0x7f) | 0x80);
    put_byte(b, (unsigned)v);
}

enum wire { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static void put_key(struct bytes *b, unsigned field, enum wire type) {
    put_varint(b, field << 3 | (unsigned)type);
}

static void put_block(struct bytes *b, unsigned field, const void *data, size_t n) {
    const unsigned char *p = data;
    put_key(b, field, LENGTH);
    put_varint(b, n);
    for (size_t i = 0; i < n; i++)
        put_byte(b, p[i]);
}

static void put_double(struct bytes *b, unsigned field, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(b, field, FIXED64);
    put_fixed(b, bits, 8);
}

static void put_float(struct bytes *b, unsigned field, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(b, field, FIXED32);
    put_fixed(b, bits, 4);
}

/* CRC-32C (RFC 3720, Castagnoli, reflected 0x82f63b78). Bit by bit: an event has some 60 bytes. */
static uint32_t crc32c(const unsigned char *p, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* Masked, because a crc of data that contains its own crc is weak (crc32c.h of TensorFlow). */
static uint32_t masked_crc(const unsigned char *p, size_t n) {
    uint32_t crc = crc32c(p, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* --- events ---------------------------------------------------------------------------------- */

static pl_err write_record(struct pl_tensorboard *t, const struct bytes *event, struct pl_diag *d) {
    struct bytes head = {.n = 0}, tail = {.n = 0};
    put_fixed(&head, event->n, 8);
    put_fixed(&head, masked_crc(head.data, 8), 4);
    put_fixed(&tail, masked_crc(event->data, event->n), 4);
    if (fwrite(head.data, 1, head.n, t->file) == head.n &&
        fwrite(event->data, 1, event->n, t->file) == event->n &&
        fwrite(tail.data, 1, tail.n, t->file) == tail.n && fflush(t->file) == 0)
        return PL_ERR_OK;
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_IO), t->path, 0, 0, "cannot write '%s': %s",
                      t->path, strerror(errno));
}

static void begin_event(struct bytes *event) {
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    event->n = 0;
    put_double(event, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
}

/* Writes an event with one value. */
static pl_err write_value(struct pl_tensorboard *t, uint64_t step, const struct bytes *value,
                          struct pl_diag *d) {
    struct bytes event, summary = {.n = 0};
    put_block(&summary, 1, value->data, value->n);
    begin_event(&event);
    put_key(&event, 2, VARINT);
    put_varint(&event, step);
    put_block(&event, 5, summary.data, summary.n);
    return write_record(t, &event, d);
}

pl_err pl_tensorboard_scalar(struct pl_tensorboard *t, const char *tag, uint64_t step, double value,
                             struct pl_diag *d) {
    struct bytes scalar = {.n = 0};
    put_block(&scalar, 1, tag, strnlen(tag, MAX_TAG));
    put_float(&scalar, 2, (float)value);
    return write_value(t, step, &scalar, d);
}

static void put_number(struct bytes *b, unsigned field, uint64_t v) {
    put_key(b, field, VARINT);
    put_varint(b, v);
}

/* A character that the limit cuts is left out whole. */
static size_t cut_text(const char *text, size_t n) {
    if (n <= MAX_TEXT) return n;
    for (n = MAX_TEXT; n && ((unsigned char)text[n] & 0xc0) == 0x80;)
        n--;
    return n;
}

pl_err pl_tensorboard_text(struct pl_tensorboard *t, const char *tag, uint64_t step,
                           const char *text, size_t n, struct pl_diag *d) {
    enum { DT_STRING = 7, DATA_CLASS_TENSOR = 2 };
    static const char plugin[] = "text";
    struct bytes dim = {.n = 0}, shape = {.n = 0}, tensor = {.n = 0};
    struct bytes data = {.n = 0}, metadata = {.n = 0}, value = {.n = 0};
    put_number(&dim, 1, 1);
    put_block(&shape, 2, dim.data, dim.n);
    put_number(&tensor, 1, DT_STRING);
    put_block(&tensor, 2, shape.data, shape.n);
    put_block(&tensor, 8, text, cut_text(text, n));
    put_block(&data, 1, plugin, sizeof plugin - 1);
    put_block(&metadata, 1, data.data, data.n);
    put_number(&metadata, 4, DATA_CLASS_TENSOR);
    put_block(&value, 1, tag, strnlen(tag, MAX_TAG));
    put_block(&value, 9, metadata.data, metadata.n);
    put_block(&value, 8, tensor.data, tensor.n);
    return write_value(t, step, &value, d);
}

static pl_err write_version(struct pl_tensorboard *t, struct pl_diag *d) {
    static const char version[] = "brain.Event:2";
    struct bytes event;
    begin_event(&event);
    put_block(&event, 3, version, sizeof version - 1);
    return write_record(t, &event, d);
}

/* --- the file -------------------------------------------------------------------------------- */

/* TensorBoard takes any name with "tfevents" in it; time first makes them sort. A second file of
 * the same second and process gets the next number. */
static pl_err create_file(struct pl_tensorboard *t, const char *dir, struct pl_diag *d) {
    char host[65] = "localhost";
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "localhost");
    int fd = -1;
    for (unsigned i = 0; fd < 0 && i < 100; i++) {
        struct pl_text path = {0};
        pl_text_addf(&path, "%s/events.out.tfevents.%lld.%s.%ld.%u", dir, (long long)time(NULL),
                     host, (long)getpid(), i);
        free(t->path);
        t->path = path.data;
        if (path.failed) return pl_host_oom(d, "a file name");
        fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) break;
    }
    if (fd >= 0 && (t->file = fdopen(fd, "wb"))) return PL_ERR_OK;
    pl_err err = pl_diag_at(d, pl_err_of_errno(PL_ERR_IO), t->path, 0, 0, "cannot create '%s': %s",
                            t->path, strerror(errno));
    if (fd >= 0) close(fd);
    return err;
}

pl_err pl_tensorboard_open(const char *dir, struct pl_tensorboard **out, struct pl_diag *d) {
    *out = NULL;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_IO), dir, 0, 0, "cannot create '%s': %s", dir,
                          strerror(errno));
    struct pl_tensorboard *t = pl_calloc(1, sizeof *t);
    if (!t) return pl_host_oom(d, "TensorBoard events");
    pl_err err = create_file(t, dir, d);
    if (err == PL_ERR_OK) err = write_version(t, d);
    if (err == PL_ERR_OK)
        *out = t;
    else
        pl_tensorboard_close(&t);
    return err;
}

void pl_tensorboard_close(struct pl_tensorboard **t) {
    if (!*t) return;
    if ((*t)->file) fclose((*t)->file);
    free((*t)->path);
    free(*t);
    *t = NULL;
}
