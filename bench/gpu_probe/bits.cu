#include "bench/gpu_probe/probe.h"

namespace probe {

void RunBits(Report& report) { report.Text("not written yet"); }

}  // namespace probe
