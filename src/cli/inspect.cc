// tokamak inspect: the contents of a model file.
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "weights/inspect.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] =
    "  tokamak inspect model.gguf\n"
    "  tokamak inspect model.gguf --json | jq .tensors[0]\n";

struct InspectFlags {
  std::string model;
  bool json = false;
};

int Inspect(const InspectFlags& flags) {
  const Result<std::string> model = ResolveModel(flags.model);
  if (!model.ok()) return Fail(model.status());
  const Status status = PrintInspection(*model, flags.json, std::cout);
  if (!status.ok()) return Fail(status);
  return kOk;
}

}  // namespace

void AddInspectCommand(CommandLine& line) {
  auto flags = std::make_shared<InspectFlags>();
  Flags f = line.Command("inspect", "Show what is in a model file", kExamples,
                         [flags] { return Inspect(*flags); });
  AddModel(f, flags->model);
  f.Add("--json", flags->json, "Print one JSON object");
}

}  // namespace tokamak::cli
