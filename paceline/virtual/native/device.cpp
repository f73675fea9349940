#include "device.h"

#include <c10/util/Exception.h>

namespace paceline {
namespace {

// The code that CUDA's runtime gives to the same mistake.
constexpr int32_t kInvalidDevice = 101;

c10::DeviceIndex num_devices = 0;
thread_local c10::DeviceIndex this_threads_device = 0;

} // namespace

void set_device_count(int count) {
  num_devices = static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex device_count() noexcept {
  return num_devices;
}

c10::DeviceIndex current_device() noexcept {
  return this_threads_device;
}

void set_current_device(c10::DeviceIndex index) noexcept {
  this_threads_device = index;
}

void check_index(c10::DeviceIndex index) {
  if (index >= 0 && index < num_devices) {
    return;
  }
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      kInvalidDevice,
      c10::str(
          "virtual error: invalid device ordinal: there is no virtual:",
          static_cast<int>(index),
          ", this process has ",
          static_cast<int>(num_devices),
          " virtual devices (0 to ",
          num_devices - 1,
          ")"));
}

c10::DeviceIndex resolve_index(std::optional<c10::Device> device) {
  if (!device.has_value() || !device->has_index()) {
    return current_device();
  }
  check_index(device->index());
  return device->index();
}

} // namespace paceline
