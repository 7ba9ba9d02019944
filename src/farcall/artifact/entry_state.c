/*
 * What regions keep between calls. farcall's loader calls __farcall_start when it has loaded the library with its
 * imports; under another runtime, the first call of a region makes its state. States end with the process.
 */

FC_COLD static int fc_state_error(const struct fc_state* state, const char* problem) {
  struct fc_text text = {.size = 0};
  if (state->kind) farcall_put(&text, "its module of kind `%s` ", state->kind);
  farcall_put(&text, "%s", problem);
  return farcall_raise_text(state->kind ? "ArtifactError" : "RuntimeError", &text);
}

static int fc_init_own(struct fc_state* state) {
  TVMFFIAny made = {.type_index = kTVMFFINone};
  if (state->init(NULL, NULL, 0, &made) != 0) return -1;
  if (made.type_index != kTVMFFIOpaquePtr) {
    fc_release(&made);
    return fc_state_error(state, "its init function returned no opaque pointer; let it return one");
  }
  state->self = made.v_ptr;
  return 0;
}

static int fc_call(TVMFFIObjectHandle function, const TVMFFIAny* args, int32_t count) {
  TVMFFIAny result = {.type_index = kTVMFFINone};
  int status = TVMFFIFunctionGetCellPtr(function)->safe_call(function, args, count, &result);
  if (status == 0) fc_release(&result);
  return status;
}

/* Gives the module its constants: one Array of Tensors. */
static int fc_give_constants(struct fc_state* state) {
  static const struct fc_function about = {"__init", NULL, 0, NULL, 0, 0};
  TVMFFIObjectHandle function = NULL;
  char name[256];
  snprintf(name, sizeof name, "__init_%s", state->function);
  if (state->lookup(name, &function) != 0) {
    return fc_state_error(state,
                          "has no function __init_<region>, which takes its constants; its backend must give one");
  }
  TVMFFIAny* tensors = calloc((size_t)state->num_constants, sizeof *tensors);
  TVMFFIAny array = {.type_index = kTVMFFINone};
  int status = tensors ? 0 : -1;
  for (int32_t i = 0; status == 0 && i < state->num_constants; ++i) {
    TVMFFIObjectHandle view = NULL;
    status = farcall_view(&state->constants[i], &view);
    if (status == 0) tensors[i] = (TVMFFIAny){.type_index = kTVMFFITensor, .v_obj = view};
  }
  if (status != 0) {
    fc_state_error(state, "got no constants: there is no memory for them");
  } else if ((status = farcall_results(&about, tensors, state->num_constants, &array)) == 0) {
    status = fc_call(function, &array, 1);
    fc_release(&array);
  }
  for (int32_t i = 0; tensors && i < state->num_constants; ++i) fc_release(&tensors[i]);
  free(tensors);
  return status;
}

static int fc_find_function(struct fc_state* state) {
  TVMFFIObjectHandle function = NULL;
  if (state->lookup(state->function, &function) != 0) {
    struct fc_text text = {.size = 0};
    farcall_put(&text, "has no function `%s`; its backend promised one: build the artifact again", state->function);
    return fc_state_error(state, text.data);
  }
  if (state->num_constants > 0 && fc_give_constants(state) != 0) return -1;
  state->self = function;
  return 0;
}

int farcall_make_state(struct fc_state* state) {
  static atomic_flag busy = ATOMIC_FLAG_INIT;
  while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
  }
  int status = 0;
  if (!atomic_load_explicit(&state->ready, memory_order_relaxed)) {
    status = state->init ? fc_init_own(state) : fc_find_function(state);
    if (status == 0) {
      atomic_store_explicit(&state->ready, true, memory_order_release);
    } else {
      (void)farcall_region_failed(state->place);
    }
  }
  atomic_flag_clear_explicit(&busy, memory_order_release);
  return status;
}

static void fc_end_states(void) {
  for (struct fc_state* const* at = farcall_states; *at; ++at) {
    struct fc_state* state = *at;
    TVMFFIAny none = {.type_index = kTVMFFINone};
    if (!state->destroy || !atomic_exchange(&state->ready, false)) continue;
    (void)state->destroy(state->self, NULL, 0, &none);
  }
}

/* Makes all states, or none. */
FARCALL_VISIBLE int __farcall_start(void) {
  for (struct fc_state* const* at = farcall_states; *at; ++at) {
    if (farcall_make_state(*at) == 0) continue;
    fc_end_states();
    return -1;
  }
  return 0;
}

__attribute__((destructor)) static void fc_at_end(void) { fc_end_states(); }
