// Command-line flags. Thin on purpose: CLI11 takes seconds to compile and stays in flags.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokamak/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own
class App;
class Option;
}  // namespace CLI

namespace tokamak::cli {

// An option that takes any text: what a test needs to try values on all of them.
struct TextOption {
  std::string command;  // "bench latency"
  std::string name;     // "--stop", or "model" for a positional
  bool positional = false;
  bool repeatable = false;
  std::function<std::vector<std::string>()> value;  // what the command would get
};

// Declares the flags of one command. Names are as CLI11 takes them: "-p,--prompt" for a flag,
// "model" for a positional. The variables hold the defaults, live as long as the program, and have
// their values when the command runs. A value is taken as it was given: no brackets, braces, commas
// or quotes mean anything before the variable's own type reads them.
class Flags {
 public:
  // `texts` gets every option that takes any text.
  Flags(CLI::App* app, std::string command, std::vector<TextOption>& texts)
      : app_(app), command_(std::move(command)), texts_(&texts) {}

  void Add(const std::string& names, bool& value, const std::string& help);  // takes no argument
  void Add(const std::string& names, int32_t& value, const std::string& help);
  void Add(const std::string& names, uint16_t& value, const std::string& help);
  void Add(const std::string& names, float& value, const std::string& help);
  void Add(const std::string& names, double& value, const std::string& help);
  void Add(const std::string& names, std::string& value, const std::string& help);
  // Adds a flag that the command does not run without.
  void AddRequired(const std::string& names, std::string& value, const std::string& help);
  void Add(const std::string& names, std::optional<int32_t>& value, const std::string& help);
  void Add(const std::string& names, std::optional<float>& value, const std::string& help);
  void Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help);
  void Add(const std::string& names, std::optional<std::string>& value, const std::string& help);
  // May be given more than once, each time with one value.
  void Add(const std::string& names, std::vector<std::string>& value, const std::string& help);
  // "1,2,3"; an empty string is an empty list.
  void Add(const std::string& names, std::optional<std::vector<int32_t>>& value,
           const std::string& help);
  // Any text that `parse` accepts; its error is shown.
  void AddParsed(const std::string& names, const std::string& placeholder,
                 std::function<Status(const std::string&)> parse, const std::string& help);
  // "4096", "512M", "2GiB".
  void AddBytes(const std::string& names, int64_t& value, const std::string& help);
  // A heading in --help for the flags that follow.
  void Group(const std::string& title) { group_ = title; }

 private:
  using Take = std::function<Status(const std::string&)>;
  // The one way in for values: `take` gets each exactly as it was given.
  CLI::Option* AddValue(const std::string& names, const std::string& placeholder, Take take,
                        const std::string& help);
  CLI::Option* AddText(const std::string& names, Take take,
                       std::function<std::vector<std::string>()> value, const std::string& help);
  CLI::Option* AddString(const std::string& names, std::string& value, const std::string& help);
  template <typename Number, typename Variable>
  void AddNumber(const std::string& names, Variable& value, const std::string& help);

  CLI::App* app_;
  std::string command_;
  std::vector<TextOption>* texts_;
  std::string group_;
};

// "4096", "512M", "2GiB" (powers of 1024) to bytes; kInvalidArgument otherwise.
Result<int64_t> ParseBytes(std::string_view text);
// "1,2,3" to numbers; kInvalidArgument names the piece that is not one.
Result<std::vector<int32_t>> ParseIntList(std::string_view text);

// Writes out what stdout still holds. kUnavailable when not all output could be written.
Status FlushOutput();

// A program of commands. Exit codes: what the command returns; 1 when it succeeded but stdout could
// not be written; 2 for flags that are wrong.
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version);
  ~CommandLine();

  // A command `name` ("bench latency" for one inside another, which is made when new). `examples`
  // ends its --help. `run` is called when the user chose it, and returns the exit code.
  Flags Command(const std::string& name, const std::string& summary, const std::string& examples,
                std::function<int()> run);
  // Reads the arguments and the file of --config, and runs the command that they name.
  int Run(int argc, char** argv);
  // The first half of Run. *chosen runs the command; it is empty if the exit code is final.
  int Parse(int argc, char** argv, std::function<int()>* chosen);

  // Every option of every command that takes any text.
  const std::vector<TextOption>& text_options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak::cli
