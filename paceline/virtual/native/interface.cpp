// What Python calls, through ctypes: no Python headers are needed to build this library, and one
// build serves every Python. Nothing here throws.

#include <ATen/core/Tensor.h>

#include <cstring>

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

at::Generator locked_generator(int device, std::unique_lock<std::mutex>& lock) {
  auto generator = default_generator(static_cast<c10::DeviceIndex>(device));
  lock = std::unique_lock<std::mutex>(generator.mutex());
  return generator;
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
  std::unique_lock<std::mutex> lock;
  locked_generator(device, lock).set_current_seed(seed);
}

uint64_t paceline_initial_seed(int device) {
  std::unique_lock<std::mutex> lock;
  return locked_generator(device, lock).current_seed();
}

int64_t paceline_rng_state_bytes() {
  std::unique_lock<std::mutex> lock;
  return locked_generator(0, lock).get_state().numel();
}

void paceline_get_rng_state(int device, uint8_t* state) {
  std::unique_lock<std::mutex> lock;
  const auto tensor = locked_generator(device, lock).get_state();
  std::memcpy(state, tensor.const_data_ptr<uint8_t>(), tensor.numel());
}

void paceline_set_rng_state(int device, const uint8_t* state) {
  std::unique_lock<std::mutex> lock;
  auto generator = locked_generator(device, lock);
  auto tensor = generator.get_state();
  std::memcpy(tensor.mutable_data_ptr<uint8_t>(), state, tensor.numel());
  generator.set_state(tensor);
}

} // extern "C"
