#pragma once

namespace paceline {

// Takes over torch.distributed's collectives for virtual tensors.
void register_collectives();

} // namespace paceline
