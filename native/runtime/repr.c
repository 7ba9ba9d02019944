/* Values as readable text, as Python's repr writes them. */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/text.h"
#include "runtime/whole.h"

enum { REPR_OFF = 1 << 6 }; /* a bit of a field's flags */

typedef struct {
  FcText text;
  int depth;
  bool first; /* the next field is the first */
} Repr;

static int show(Repr* r, const TVMFFIAny* value);

static void show_quoted(FcText* text, TVMFFIByteArray bytes, bool all) {
  fc_text_put(text, "\"");
  for (size_t i = 0; i < bytes.size; ++i) {
    uint8_t c = (uint8_t)bytes.data[i];
    if (c == '"' || c == '\\') fc_text_format(text, "\\%c", c);
    else if (c == '\n') fc_text_put(text, "\\n");
    else if (c < 0x20 || c == 0x7F || (all && c > 0x7F)) fc_text_format(text, "\\x%02x", c);
    else fc_text_add(text, &bytes.data[i], 1);
  }
  fc_text_put(text, "\"");
}

static int show_items(Repr* r, const TVMFFISeqCell* cell, const char* open, const char* close) {
  fc_text_put(&r->text, open);
  int rc = 0;
  for (int64_t i = 0; rc == 0 && i < cell->size; ++i) {
    if (i) fc_text_put(&r->text, ", ");
    rc = show(r, (const TVMFFIAny*)cell->data + i);
  }
  if (cell->size == 1 && *open == '(') fc_text_put(&r->text, ",");
  fc_text_put(&r->text, close);
  return rc;
}

static int show_map(Repr* r, const TVMFFIObject* map) {
  FcMapCursor cursor = {.begun = false};
  int rc = 0;
  fc_text_put(&r->text, "{");
  for (bool first = true; rc == 0 && fc_map_next(map, &cursor); first = false) {
    if (!first) fc_text_put(&r->text, ", ");
    rc = show(r, cursor.key);
    fc_text_put(&r->text, ": ");
    if (rc == 0) rc = show(r, cursor.value);
  }
  fc_text_put(&r->text, "}");
  return rc;
}

static void show_dims(FcText* text, const int64_t* dims, size_t n) {
  for (size_t i = 0; i < n; ++i) fc_text_format(text, "%s%" PRId64, i ? ", " : "", dims[i]);
}

static void show_tensor(FcText* text, const DLTensor* tensor) {
  char device[FC_NAME_MAX];
  fc_text_type(text, tensor->dtype, tensor->ndim, tensor->shape);
  fc_device_print(tensor->device, device);
  fc_text_format(text, "@%s", device);
}

static int show_field(void* context, const TVMFFIFieldInfo* field, TVMFFIAny* value) {
  Repr* r = context;
  if (field->flags & REPR_OFF) return 0;
  if (!r->first) fc_text_put(&r->text, ", ");
  fc_text_add(&r->text, field->name.data, field->name.size);
  fc_text_put(&r->text, "=");
  int rc = show(r, value);
  r->first = false;
  return rc;
}

static int show_fields(Repr* r, TVMFFIObject* object) {
  fc_text_put(&r->text, fc_type_name(object->type_index));
  if (!fc_whole_has_fields(object)) return 0;
  fc_text_put(&r->text, "(");
  r->first = true;
  int rc = fc_whole_fields(object, show_field, r);
  fc_text_put(&r->text, ")");
  return rc;
}

static int show_inside(Repr* r, TVMFFIObject* object) {
  switch (object->type_index) {
    case kTVMFFIArray: return show_items(r, TVMFFISeqGetCellPtr(object), "(", ")");
    case kTVMFFIList: return show_items(r, TVMFFISeqGetCellPtr(object), "[", "]");
    case kTVMFFIMap:
    case kTVMFFIDict: return show_map(r, object);
    case kTVMFFIShape:
      fc_text_put(&r->text, "Shape(");
      show_dims(&r->text, TVMFFIShapeGetCellPtr(object)->data, TVMFFIShapeGetCellPtr(object)->size);
      fc_text_put(&r->text, ")");
      return 0;
    default: return show_fields(r, object);
  }
}

/* A container that contains itself is shown as dots. */
static int show_object(Repr* r, TVMFFIObject* object) {
  if (r->depth == FC_DEPTH_LIMIT) {
    fc_text_put(&r->text, "...");
    return 0;
  }
  ++r->depth;
  int rc = show_inside(r, object);
  --r->depth;
  return rc;
}

static void show_plain(FcText* text, const TVMFFIAny* value) {
  char name[FC_NAME_MAX];
  switch (value->type_index) {
    case kTVMFFINone: fc_text_put(text, "None"); break;
    case kTVMFFIBool: fc_text_put(text, value->v_int64 ? "True" : "False"); break;
    case kTVMFFIInt: fc_text_format(text, "%" PRId64, value->v_int64); break;
    case kTVMFFIFloat: fc_text_float(text, value->v_float64, "inf", "nan"); break;
    case kTVMFFIDataType:
      fc_dtype_print(value->v_dtype, name);
      fc_text_put(text, name);
      break;
    case kTVMFFIDevice:
      fc_device_print(value->v_device, name);
      fc_text_put(text, name);
      break;
    default: fc_text_format(text, "%s(%p)", fc_type_name(value->type_index), value->v_ptr);
  }
}

static int show(Repr* r, const TVMFFIAny* value) {
  TVMFFIByteArray text;
  const DLTensor* tensor = fc_any_tensor(value);
  if (tensor) {
    show_tensor(&r->text, tensor);
  } else if (fc_any_text(value, &text)) {
    show_quoted(&r->text, text, false);
  } else if (fc_any_bytes(value, &text)) {
    fc_text_put(&r->text, "b");
    show_quoted(&r->text, text, true);
  } else if (fc_any_is_object(value)) {
    return show_object(r, value->v_obj);
  } else {
    show_plain(&r->text, value);
  }
  return 0;
}

int fc_whole_repr(const TVMFFIAny* value, TVMFFIAny* out) {
  Repr r = {.first = true};
  *out = fc_any_none();
  if (show(&r, value) == 0) return fc_text_finish(&r.text, out);
  free(r.text.data);
  return -1;
}
