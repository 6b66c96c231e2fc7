#include "bench/gpu_probe/probe.h"

namespace probe {

void RunWgmma(Report& report) { report.Text("not written yet"); }

}  // namespace probe
