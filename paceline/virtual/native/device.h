// Which virtual device is current, and how many there are.
#pragma once

#include <c10/core/Device.h>

namespace paceline {

// PyTorch keeps this device type free for backends that live outside its tree.
constexpr auto kVirtual = c10::DeviceType::PrivateUse1;

// c10::DeviceIndex is a signed byte, and PyTorch itself stops at 120 for CUDA.
constexpr int kMaxDevices = 120;

void set_device_count(int count);
c10::DeviceIndex device_count() noexcept;

// The current device is a property of the thread, as it is for CUDA.
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index) noexcept;

// Raises what a bad ordinal raises on a GPU machine: torch.AcceleratorError.
void check_index(c10::DeviceIndex index);

// The index that a device argument means: an absent device or index means the current one.
c10::DeviceIndex resolve_index(std::optional<c10::Device> device);

// Makes a device current until the end of the scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(c10::DeviceIndex index) : before_(current_device()) {
    set_current_device(index);
  }
  ~CurrentDevice() {
    set_current_device(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  c10::DeviceIndex before_;
};

} // namespace paceline
