#pragma once

namespace paceline {

// Takes over every aten operator that has a CPU kernel and no kernel of ours.
void register_cpu_operators();

} // namespace paceline
