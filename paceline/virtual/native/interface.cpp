// What Python calls, through ctypes: no Python headers are needed to build this library. Nothing here
// throws, since ctypes would end the process.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <cstring>
#include <string>

#include "backward.h"
#include "collectives.h"
#include "device.h"
#include "fork.h"
#include "generator.h"
#include "hooks.h"
#include "ledger.h"
#include "operators.h"
#include "timeline.h"

using namespace paceline;

namespace {

at::Generator generator_of(int device) {
  return default_generator(static_cast<c10::DeviceIndex>(device));
}

at::Tensor state_tensor(const uint8_t* state, int64_t bytes) {
  auto tensor = at::detail::empty_cpu({bytes}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr<uint8_t>(), state, bytes);
  return tensor;
}

} // namespace

extern "C" {

void paceline_start(int devices) {
  set_device_count(devices);
  register_cpu_operators();
  register_collectives();
  register_hooks();
  watch_forks();
  serve_backward();
}

bool paceline_backward_can_serve(int devices) {
  return backward_can_serve(devices);
}

bool paceline_is_in_bad_fork() {
  return is_in_bad_fork();
}

int paceline_current_device() {
  return current_device();
}

void paceline_set_limit(int device, int64_t bytes) {
  set_limit(static_cast<c10::DeviceIndex>(device), bytes);
}

void paceline_set_link(double bytes_per_s, double latency_s) {
  set_link(bytes_per_s, latency_s);
}

void paceline_memory(int device, MemoryCounts* counts) {
  *counts = memory_counts(static_cast<c10::DeviceIndex>(device));
}

void paceline_reset_peak(int device) {
  reset_peak(static_cast<c10::DeviceIndex>(device));
}

void paceline_transfers(int from, int to, TransferCounts* counts) {
  *counts = transfer_counts(from, to);
}

void paceline_reset_transfers() {
  reset_transfers();
}

void paceline_seed(int device, uint64_t seed) {
  generator_of(device).set_current_seed(seed);
}

uint64_t paceline_initial_seed(int device) {
  return generator_of(device).current_seed();
}

int64_t paceline_rng_state_bytes() {
  return generator_of(0).get_state().numel();
}

void paceline_get_rng_state(int device, uint8_t* state) {
  const auto tensor = generator_of(device).get_state();
  std::memcpy(state, tensor.const_data_ptr<uint8_t>(), tensor.numel());
}

// Returns what is wrong with the state, for Python to raise, or null.
const char* paceline_set_rng_state(int device, const uint8_t* state, int64_t bytes) {
  thread_local std::string problem;
  try {
    generator_of(device).set_state(state_tensor(state, bytes));
    return nullptr;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
    return problem.c_str();
  }
}

} // extern "C"
