#pragma once

namespace paceline {

// Makes "virtual" the accelerator of this process. PyTorch allows it once.
void register_hooks();

} // namespace paceline
