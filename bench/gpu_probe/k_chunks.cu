#include "bench/gpu_probe/probe.h"

namespace probe {

void RunKChunks(Report& report) { report.Text("not written yet"); }

}  // namespace probe
