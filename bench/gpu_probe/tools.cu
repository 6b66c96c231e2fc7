#include "bench/gpu_probe/probe.h"

namespace probe {

void RunTools(Report& report) { report.Text("not written yet"); }

}  // namespace probe
