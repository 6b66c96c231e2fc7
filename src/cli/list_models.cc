// tokamak list-models: the supported architectures.
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/common.h"
#include "models/registry.h"

namespace tokamak::cli {
namespace {

constexpr char kExamples[] = "  tokamak list-models\n";

// Prints the table of docs/models.md.
void PrintMarkdown() {
  std::printf("| Architecture | Models | Compared with the reference on |\n|---|---|---|\n");
  for (const KnownModel& model : KnownModels()) {
    std::printf("| `%s` | %s | %s |\n", std::string(model.architecture).c_str(),
                std::string(model.models).c_str(), std::string(model.goldens).c_str());
  }
}

void PrintText() {
  for (const KnownModel& model : KnownModels()) {
    std::printf("%-22s %s\n", std::string(model.architecture).c_str(),
                std::string(model.models).c_str());
  }
}

}  // namespace

void AddListModelsCommand(CommandLine& line) {
  auto markdown = std::make_shared<bool>(false);
  Flags f = line.Command("list-models", "List the supported architectures", kExamples, [markdown] {
    *markdown ? PrintMarkdown() : PrintText();
    return kOk;
  });
  f.Add("--markdown", *markdown, "Print a Markdown table");
}

}  // namespace tokamak::cli
