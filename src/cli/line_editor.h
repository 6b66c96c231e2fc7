// Lines from a terminal, with editing and a history that is kept between runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace tokamak::cli {

class LineEditor {
 public:
  // `history_file`: where the history is kept; empty: it is not. `interrupt` outlives the editor.
  LineEditor(const std::string& history_file, const InterruptFlag& interrupt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Event { kLine, kInterrupt, kEnd };
  // Shows `prompt` and reads a line, without its end, into *line. What is pasted (where the
  // terminal says so) and Alt-Enter may make it several. kInterrupt: the flag is raised. kEnd is
  // Ctrl-D on an empty line, the end of the input, or being asked to end.
  Event Read(const std::string& prompt, std::string* line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak::cli
