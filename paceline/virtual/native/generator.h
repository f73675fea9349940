// Random numbers: every device has a generator of its own, which is a CPU generator with another
// address, so that one seed gives the same numbers on a virtual device as on the CPU.
#pragma once

#include <ATen/core/Generator.h>

namespace paceline {

at::Generator new_generator(c10::DeviceIndex device);
const at::Generator& default_generator(c10::DeviceIndex device);

// The CPU generator that draws for a virtual one.
at::Generator cpu_generator(const at::Generator& generator);

// Some CPU kernels draw from the CPU's default generator without naming one. In this scope that
// generator stands where the device's stands, and afterwards the other way round.
class AsDefaultGenerator {
 public:
  explicit AsDefaultGenerator(c10::DeviceIndex device);
  ~AsDefaultGenerator();
  AsDefaultGenerator(const AsDefaultGenerator&) = delete;
  AsDefaultGenerator& operator=(const AsDefaultGenerator&) = delete;

 private:
  void exchange();
  c10::DeviceIndex device_;
};

} // namespace paceline
