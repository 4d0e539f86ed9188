// The plain form of a Produce request (plain_produce.py), read at once, and its batches, joined for a log. It decides
// nothing: it gives what is in the bytes, or None, and is in every case equal to the functions of the same name there,
// which are the reference.
//
//     configure(PlainProduce, BatchHeader, limits)   once, before the first scan
//     scan(frame) -> PlainProduce | None
//     join(batches, base_offset, leader_epoch) -> (bytes, [(last offset, largest timestamp)])
//
// tests/broker/environment/test_compiled.py compares the two, also built with the address sanitizer. It is for x86-64: the check
// sums of batches need the processor's help, otherwise the libraries that Python has are faster.
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nmmintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// The record batch, as in batch.py.
enum {
    HEADER_BYTES = 61,
    LENGTH_PREFIX_BYTES = 12,
    LENGTH_AT = 8,
    LEADER_EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    CRC_START = 21,
    ATTRIBUTES_AT = 21,
    LAST_OFFSET_DELTA_AT = 23,
    MAX_TIMESTAMP_AT = 35,
    PRODUCER_ID_AT = 43,
    PRODUCER_EPOCH_AT = 51,
    BASE_SEQUENCE_AT = 53,
    RECORD_COUNT_AT = 57,
    MAGIC = 2,
    HEADER_FIELDS = 13,
    NOT_PLAIN_BITS = 0x10 | 0x20,
    CODEC_MASK = 0x07,
};
enum { PRODUCE_KEY = 0, ID_BYTES = 16, NULL_LENGTH = 0xFF, VARINT_BITS = 7, PARTS_ROOM = 64 };

static struct {
    PyObject *request, *header;  // the named tuples
    int version_min, version_max, flexible_from, topic_ids_from, parts_max, client_id_max, varint_bytes, codec_max;
} known;

// ---- CRC-32C (Castagnoli)

__attribute__((target("sse4.2"))) static uint32_t crc_of(const uint8_t *data, size_t count) {
    uint64_t crc = 0xFFFFFFFFu;
    for (; count >= 8; count -= 8, data += 8) {
        uint64_t eight;
        memcpy(&eight, data, sizeof eight);
        crc = _mm_crc32_u64(crc, eight);
    }
    while (count--)
        crc = _mm_crc32_u8((uint32_t)crc, *data++);
    return ~(uint32_t)crc;
}

// ---- Reading: a place in a frame, which never passes its end. What would, and what is not plain, makes it bad.

typedef struct {
    const uint8_t *data;
    Py_ssize_t at, size;
    bool is_bad;
} Reader;

static const uint8_t *taken(Reader *reader, Py_ssize_t count) {
    static const uint8_t nothing[16];
    if (reader->is_bad || count > reader->size - reader->at) {
        reader->is_bad = true;
        return nothing;
    }
    const uint8_t *place = reader->data + reader->at;
    reader->at += count;
    return place;
}

static int64_t number_at(const uint8_t *place, int count) {
    uint64_t found = place[0] & 0x80 ? UINT64_MAX : 0;
    for (int i = 0; i < count; i++)
        found = found << 8 | place[i];
    return (int64_t)found;
}

static int byte_of(Reader *reader) { return *taken(reader, 1); }
static int int16_of(Reader *reader) { return (int)number_at(taken(reader, 2), 2); }
static int32_t int32_of(Reader *reader) { return (int32_t)number_at(taken(reader, 4), 4); }

// An unsigned varint of few bytes.
static int32_t varint_of(Reader *reader) {
    int32_t found = 0;
    for (int i = 0; i < known.varint_bytes; i++) {
        int byte = byte_of(reader);
        found |= (byte & 0x7F) << VARINT_BITS * i;
        if (!(byte & 0x80))
            return found;
    }
    reader->is_bad = true;
    return 0;
}

static void expect(Reader *reader, bool is_plain) { reader->is_bad |= !is_plain; }

// ---- What is found, as the named tuples

// Make a tuple of a type and of `count` items, which are taken over. NULL items are of an error before.
static PyObject *tuple_of(PyObject *type, int count, PyObject *const *items) {
    // As `tuple.__new__` does for a named tuple, which has a function in Python for it.
    PyObject *made = type == NULL ? PyTuple_New(count) : PyType_GenericAlloc((PyTypeObject *)type, count);
    bool is_whole = made != NULL;
    for (int i = 0; i < count; i++) {
        is_whole &= items[i] != NULL;
        if (made == NULL)
            Py_XDECREF(items[i]);
        else
            PyTuple_SetItem(made, i, items[i]);
    }
    if (!is_whole)
        Py_CLEAR(made);
    return made;
}

// What a client may send whatever the log, and not in a transaction.
static bool is_plain(const uint8_t *batch) {
    int64_t attributes = number_at(batch + ATTRIBUTES_AT, 2), last_offset_delta = number_at(batch + LAST_OFFSET_DELTA_AT, 4);
    int64_t producer_epoch = number_at(batch + PRODUCER_EPOCH_AT, 2), base_sequence = number_at(batch + BASE_SEQUENCE_AT, 4);
    return number_at(batch, 8) == 0 && !(attributes & NOT_PLAIN_BITS) && (attributes & CODEC_MASK) <= known.codec_max &&
           last_offset_delta >= 0 && number_at(batch + RECORD_COUNT_AT, 4) == last_offset_delta + 1 &&
           (number_at(batch + PRODUCER_ID_AT, 8) < 0 || (producer_epoch >= 0 && base_sequence >= 0));
}

// The header of exactly one batch of the plain form whose length, format and CRC are right; None for anything else.
static PyObject *header_of(const uint8_t *batch, Py_ssize_t size) {
    static const int widths[HEADER_FIELDS] = {8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4};
    if (size < HEADER_BYTES || batch[MAGIC_AT] != MAGIC ||
        number_at(batch + LENGTH_AT, 4) + LENGTH_PREFIX_BYTES != size ||
        (uint32_t)number_at(batch + CRC_AT, 4) != crc_of(batch + CRC_START, (size_t)(size - CRC_START)) || !is_plain(batch))
        Py_RETURN_NONE;
    PyObject *fields[HEADER_FIELDS];
    for (int i = 0, at = 0; i < HEADER_FIELDS; at += widths[i++]) {
        int64_t field = number_at(batch + at, widths[i]);
        fields[i] = PyLong_FromLongLong(at == CRC_AT ? (long long)(uint32_t)field : field);
    }
    return tuple_of(known.header, HEADER_FIELDS, fields);
}

// The lists of a request: of each part its place, its records and their header.
typedef struct {
    PyObject *frame, *places, *records, *headers;
} Found;

// Append to a list, and take over `item`. Returns false with a Python error.
static bool added(PyObject *list, PyObject *item) {
    bool is_added = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return is_added;
}

static bool add_part(const Found *found, PyObject *topic, int32_t index, const Reader *reader, Py_ssize_t size) {
    PyObject *place[] = {Py_NewRef(topic), PyLong_FromLong(index)};
    return added(found->places, tuple_of(NULL, 2, place)) &&
           added(found->records, PySequence_GetSlice(found->frame, reader->at - size, reader->at)) &&
           added(found->headers, header_of(reader->data + reader->at - size, size));
}

// Read the partitions of a topic. Returns false with a Python error.
static bool read_topic(Reader *reader, const Found *found, int version, PyObject *topic) {
    bool is_flexible = version >= known.flexible_from;
    int32_t count = is_flexible ? byte_of(reader) - 1 : int32_of(reader);
    expect(reader, 0 < count && count <= known.parts_max - PyList_Size(found->places));
    for (int32_t i = 0; i < count && !reader->is_bad; i++) {
        int32_t index = int32_of(reader);
        int32_t size = is_flexible ? varint_of(reader) - 1 : int32_of(reader);
        expect(reader, size >= 0);
        taken(reader, size);
        if (!reader->is_bad && !add_part(found, topic, index, reader, size))
            return false;
        if (is_flexible)
            expect(reader, byte_of(reader) == 0);  // no tags
    }
    if (is_flexible)
        expect(reader, byte_of(reader) == 0);
    return true;
}

typedef struct {
    const uint8_t *name;
    Py_ssize_t size;
} Topic;

static bool read_topics(Reader *reader, const Found *found, int version) {
    Topic topics[PARTS_ROOM];
    bool is_flexible = version >= known.flexible_from;
    int32_t count = is_flexible ? byte_of(reader) - 1 : int32_of(reader);
    expect(reader, 0 < count && count <= known.parts_max);
    for (int32_t i = 0; i < count && !reader->is_bad; i++) {
        Topic *topic = topics + i;
        topic->size = ID_BYTES;
        if (!is_flexible)
            topic->size = int16_of(reader);
        else if (version < known.topic_ids_from) {
            topic->size = byte_of(reader) - 1;
            expect(reader, topic->size < 0x7F);
        }
        expect(reader, topic->size >= 0);
        topic->name = taken(reader, topic->size);
        for (int32_t j = 0; j < i && !reader->is_bad; j++)
            expect(reader, topics[j].size != topic->size || memcmp(topics[j].name, topic->name, (size_t)topic->size));
        if (reader->is_bad)
            break;
        PyObject *name = PyBytes_FromStringAndSize((const char *)topic->name, topic->size);
        bool is_read = name != NULL && read_topic(reader, found, version, name);
        Py_XDECREF(name);
        if (!is_read)
            return false;
    }
    if (is_flexible)
        expect(reader, byte_of(reader) == 0);
    expect(reader, reader->at == reader->size);
    return true;
}

// Text in UTF-8, None for a negative size; NULL without an error if it is not UTF-8.
static PyObject *text_of(const uint8_t *text, int size) {
    if (size < 0)
        return Py_NewRef(Py_None);
    PyObject *found = PyUnicode_DecodeUTF8((const char *)text, size, "strict");
    if (found == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return found;
}

static PyObject *read_request(Reader *reader, PyObject *frame) {
    int key = int16_of(reader), version = int16_of(reader);
    int32_t correlation_id = int32_of(reader);
    int client_id_bytes = int16_of(reader);
    expect(reader, key == PRODUCE_KEY && known.version_min <= version && version <= known.version_max);
    expect(reader, -1 <= client_id_bytes && client_id_bytes <= known.client_id_max);
    const uint8_t *client_id = taken(reader, client_id_bytes < 0 ? 0 : client_id_bytes);
    int empty = version >= known.flexible_from ? 0 : NULL_LENGTH;  // no tags, or the first byte of null
    expect(reader, byte_of(reader) == empty);
    expect(reader, byte_of(reader) == empty);  // no transactional id
    int acks = int16_of(reader);
    int32_t timeout_ms = int32_of(reader);
    if (reader->is_bad)
        Py_RETURN_NONE;
    PyObject *request = NULL;
    Found found = {frame, PyList_New(0), PyList_New(0), PyList_New(0)};
    bool has_lists = found.places != NULL && found.records != NULL && found.headers != NULL;
    if (has_lists && read_topics(reader, &found, version)) {
        PyObject *name = reader->is_bad ? Py_NewRef(Py_None) : text_of(client_id, client_id_bytes);
        if (reader->is_bad || name == NULL)
            request = PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        else {
            PyObject *fields[] = {PyLong_FromLong(version),  PyLong_FromLong(correlation_id), Py_NewRef(name),
                                  PyLong_FromLong(acks),     PyLong_FromLong(timeout_ms),     Py_NewRef(found.places),
                                  Py_NewRef(found.records), Py_NewRef(found.headers)};
            request = tuple_of(known.request, sizeof fields / sizeof *fields, fields);
        }
        Py_XDECREF(name);
    }
    Py_XDECREF(found.places);
    Py_XDECREF(found.records);
    Py_XDECREF(found.headers);
    return request;
}

static PyObject *scan(PyObject *module, PyObject *frame) {
    (void)module;
    Py_buffer view;
    if (known.request == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure is called first");
        return NULL;
    }
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Reader reader = {view.buf, 0, view.len, false};
    PyObject *found = read_request(&reader, frame);
    PyBuffer_Release(&view);
    return found;
}

// ---- Writing

static void put(uint8_t *place, uint64_t number, int count) {
    while (count--) {
        place[count] = (uint8_t)number;
        number >>= 8;
    }
}

// Copy a batch to `place`, with its offset and leader epoch. Returns its end, a pair; NULL with a Python error.
static PyObject *placed(PyObject *batch, uint8_t *place, Py_ssize_t room, int64_t *offset, int leader_epoch) {
    Py_buffer view;
    if (PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    bool fits = HEADER_BYTES <= view.len && view.len <= room;
    if (fits)
        memcpy(place, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "a batch has at least %d bytes", HEADER_BYTES);
    put(place, (uint64_t)*offset, 8);
    put(place + LEADER_EPOCH_AT, (uint64_t)leader_epoch, 4);
    int64_t last_offset = *offset + number_at(place + LAST_OFFSET_DELTA_AT, 4);
    *offset = last_offset + 1;
    return Py_BuildValue("(LL)", (long long)last_offset, (long long)number_at(place + MAX_TIMESTAMP_AT, 8));
}

static PyObject *join(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *batches;
    long long base_offset;
    int leader_epoch;
    if (!PyArg_ParseTuple(arguments, "O!Li", &PyList_Type, &batches, &base_offset, &leader_epoch))
        return NULL;
    Py_ssize_t count = PyList_Size(batches), size = 0, at = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t each = PyObject_Size(PyList_GetItem(batches, i));
        if (each < 0)
            return NULL;
        size += each;
    }
    PyObject *joined = PyBytes_FromStringAndSize(NULL, size), *ends = PyList_New(0), *found = NULL;
    bool is_done = joined != NULL && ends != NULL;
    int64_t offset = base_offset;
    for (Py_ssize_t i = 0; is_done && i < count; i++) {
        PyObject *batch = PyList_GetItem(batches, i);
        is_done = added(ends, placed(batch, (uint8_t *)PyBytes_AsString(joined) + at, size - at, &offset, leader_epoch));
        at += is_done ? PyObject_Size(batch) : 0;
    }
    if (is_done)
        found = PyTuple_Pack(2, joined, ends);
    Py_XDECREF(joined);
    Py_XDECREF(ends);
    return found;
}

static PyObject *configure(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *request, *header;
    if (!PyArg_ParseTuple(arguments, "OO(iiiiiiii)", &request, &header, &known.version_min, &known.version_max,
                          &known.flexible_from, &known.topic_ids_from, &known.parts_max, &known.client_id_max,
                          &known.varint_bytes, &known.codec_max))
        return NULL;
    if (known.parts_max > PARTS_ROOM)
        return PyErr_Format(PyExc_ValueError, "a request has room for %d topics here", PARTS_ROOM);
    known.request = Py_NewRef(request);
    known.header = Py_NewRef(header);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, NULL},
    {"join", join, METH_VARARGS, NULL},
    {"scan", scan, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_bytes", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__bytes(void) {
    if (!__builtin_cpu_supports("sse4.2")) {
        PyErr_SetString(PyExc_ImportError, "this processor has no instruction for CRC-32C");
        return NULL;
    }
    return PyModule_Create(&definition);
}
