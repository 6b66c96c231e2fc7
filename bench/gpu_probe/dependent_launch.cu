#include "bench/gpu_probe/probe.h"

namespace probe {

void RunDependentLaunch(Report& report) { report.Text("not written yet"); }

}  // namespace probe
