// Random numbers: every device has a generator of its own, which is a CPU generator with another
// address, so that one seed gives the same numbers on a virtual device as on the CPU.
#pragma once

#include <ATen/core/Generator.h>

namespace paceline {

at::Generator new_generator(c10::DeviceIndex device);
const at::Generator& default_generator(c10::DeviceIndex device);

// The CPU generator that draws for a virtual one.
at::Generator cpu_generator(const at::Generator& generator);

} // namespace paceline
