// Life cycle of the account within a run.
#include "profile.hpp"

#include "report.hpp"

#include <cstdio>

namespace tenon::profile {
Profile::Profile(const Options& options)
    : Profile(options.integer("skip"), static_cast<std::size_t>(options.integer("rows")),
              options.boolean("print"), make_posix_files()) {}

Profile::Profile(std::int64_t skip, std::size_t rows, bool print, std::unique_ptr<FileSystem> files)
    : skip_(skip), rows_(rows), print_(print), files_(std::move(files)) {}

void Profile::on_start(const RunInfo& info) {
  folder_ = info.folder;
  print_ = print_ && !info.quiet;
}

void Profile::on_slot(const SlotRecord& record) {
  if (seen_++ < skip_) {
    account_.drop_slot();
  } else {
    account_.end_slot(record.seconds);
  }
}

void Profile::on_finish(std::string_view, std::string_view) {
  if (folder_.empty() || account_.slots() == 0) return;
  const std::string text = table(account_, rows_);
  write_text_atomically(*files_, folder_ + "/profile.json", json(account_));
  write_text_atomically(*files_, folder_ + "/profile.txt", text);
  if (print_) std::fprintf(stderr, "\n%s\n", text.c_str());
}

}  // namespace tenon::profile
