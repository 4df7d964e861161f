// The course of a study; see reproduce.hpp.
#include "reproduce/reproduce.hpp"

#include "base/file_descriptor.hpp"
#include "reproduce/study_kind.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <optional>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "study.txt";

/// One folder holds one study at one size: a table of quick runs must never replace a real one.
void claim(const fs::path& folder, const StudyFile& study, const Size& size) {
  const std::string mine = fmt::format("study {} at size {}\n", study.name, size.name);
  if (std::optional<std::string> other = base::read_file(folder / kMark)) {
    if (*other == mine) return;
    while (other->ends_with('\n')) other->pop_back();
    fail_config(fmt::format("tenon reproduce: {} holds {}, not {}; choose another folder with --out",
                            folder.string(), *other, mine.substr(0, mine.size() - 1)));
  }
  const auto files = make_posix_files();
  files->write_text_atomically((folder / kMark).string(), mine);
}

void write_pages(Outcome& out, const fs::path& folder, const Request& request) {
  out.result.provenance.command = request.command;
  out.result.provenance.jobs = request.jobs;
  out.markdown_path = (folder / "table.md").string();
  out.json_path = (folder / "table.json").string();
  out.figure_path = (folder / "figure.svg").string();
  const auto files = make_posix_files();
  files->write_text_atomically(out.figure_path, figure_svg(out.result));
  files->write_text_atomically(out.json_path, table_json(out.result));
  files->write_text_atomically(out.markdown_path, table_markdown(out.result));
  out.exit_status = out.result.complete && !out.runs.interrupted ? 0 : 1;
}

}  // namespace

Outcome reproduce(const StudyFile& given, const Size& given_size, const Request& request) {
  const fs::path folder = fs::absolute(request.folder).lexically_normal();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_config(fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
  claim(folder, given, given_size);
  const Size size = with_simulation(given, given_size, request.folder);

  ab::RunnerOptions runner;
  runner.program = request.program;
  runner.folder = folder.string();
  runner.jobs = request.jobs;
  runner.progress = request.progress;
  runner.label = "reproduce";
  runner.resolve = request.resolve_config;
  Outcome out = given.kind->run(given, size, request, std::move(runner));
  write_pages(out, folder, request);
  return out;
}

std::string closing_text(const Outcome& outcome) {
  const StudyResult& r = outcome.result;
  std::string out;
  for (const std::string& warning : r.warnings) out += "  ! " + warning + "\n";
  out += r.study.kind->lines(r) + comparisons_text(r) + r.study.kind->legend(r);
  if (outcome.runs.interrupted) out += "interrupted: the same command continues where it stopped\n";
  if (!caution(r.size).empty()) out += caution(r.size) + "\n";
  return out + outcome.markdown_path + "\n";
}

}  // namespace tenon::reproduce
