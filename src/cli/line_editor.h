// Reads lines from a terminal, with editing and a history kept between runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/interrupt.h"

namespace tokamak::cli {

class LineEditor {
 public:
  // `history_file`: empty to keep no history. `interrupt` must outlive the editor.
  LineEditor(const std::string& history_file, const InterruptFlag& interrupt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Event { kLine, kInterrupt, kEnd };
  // Shows `prompt` and reads a line without its end into *line. Pasted text (if the terminal marks
  // it) and Alt-Enter can make it several lines. kInterrupt: the flag is raised. kEnd: Ctrl-D on an
  // empty line, the end of the input, or a request to end.
  Event Read(const std::string& prompt, std::string* line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokamak::cli
