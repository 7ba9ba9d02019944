/* Outputs that regions allocate, because their sizes are known only when the region has run. */

/* A new reference. The layout of the count is the ABI's: the strong references are its low half. */
static TVMFFIAny fc_share(const TVMFFIAny* value) {
  if (value->type_index >= kTVMFFIStaticObjectBegin) {
    (void)__atomic_fetch_add(&value->v_obj->combined_ref_count, 1, __ATOMIC_RELAXED);
  }
  return *value;
}

FC_COLD static int fc_refuse_late(const char* place, const char* expected, const TVMFFIAny* got) {
  struct fc_text text = {.size = 0};
  const DLTensor* tensor = fc_tensor(got);
  fc_put(&text, "%s: expected that its function returns %s, got ", place, expected);
  if (tensor) {
    fc_put_tensor(&text, tensor);
    if (!fc_row_major(tensor)) fc_put(&text, " that is not row-major");
  } else {
    fc_put_kind(&text, got);
  }
  fc_put(&text, "; its backend must allocate the outputs in `region.allocated`");
  return fc_raise("TypeError", &text);
}

static int fc_take_one(const char* place, const TVMFFIAny* value, const struct fc_parameter* want, int64_t* symbols,
                       struct fc_late* out) {
  const DLTensor* tensor = value->type_index == kTVMFFITensor ? fc_tensor(value) : NULL;
  if (!tensor || !fc_bind(want, tensor, symbols) || !fc_row_major(tensor)) {
    return fc_refuse_late(place, want->type, value);
  }
  *out = (struct fc_late){fc_share(value), (char*)tensor->data + tensor->byte_offset};
  return 0;
}

int farcall_take_late(const char* place, TVMFFIAny* result, const struct fc_parameter* want, int32_t count,
                      int64_t* symbols, struct fc_late* out) {
  const TVMFFIAny* items = result;
  int status = 0;
  if (count != 1) {
    const TVMFFISeqCell* cell = result->type_index == kTVMFFIArray ? TVMFFISeqGetCellPtr(result->v_obj) : NULL;
    if (!cell || cell->size != count) {
      status = fc_refuse_late(place, "an Array of all outputs that it allocates", result);
    } else {
      items = cell->data;
    }
  }
  for (int32_t i = 0; status == 0 && i < count; ++i) {
    status = fc_take_one(place, &items[i], &want[i], symbols, &out[i]);
  }
  fc_release(result);
  return status;
}
