// The failing file system of faulty_files.hpp.
#include "store/testing/faulty_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

namespace tenon::testing {

void FaultyFiles::arm(const FaultPlan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
  operations_ = 0;
  bytes_written_ = 0;
  trace_.clear();
}

std::int64_t FaultyFiles::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

std::vector<std::string> FaultyFiles::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
}

std::int64_t FaultyFiles::bytes_written() const {
  const std::lock_guard lock(mutex_);
  return bytes_written_;
}

double FaultyFiles::slow_seconds() const {
  const std::lock_guard lock(mutex_);
  return plan_.slow_seconds;
}

void FaultyFiles::step(const char* what, const std::string& path, bool* torn) {
  const std::lock_guard lock(mutex_);
  const std::int64_t index = operations_++;
  trace_.push_back(std::string(what) + " " + path);
  if (plan_.fail_at < 0 || index < plan_.fail_at || (index > plan_.fail_at && !plan_.dead_after)) return;
  if (torn != nullptr && plan_.torn && index == plan_.fail_at) {
    *torn = true;
    return;
  }
  fail("failure " + std::to_string(plan_.code) + " of operation " + std::to_string(index) + ": " + what +
       " " + path);
}

void FaultyFiles::fail(const std::string& what) const {
  if (plan_.kill) ::kill(::getpid(), SIGKILL);
  throw FileError(plan_.code, "injected " + what);
}

void FaultyFiles::fail_torn(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  fail("torn write to " + path);
}

std::int64_t FaultyFiles::take_budget(std::int64_t wanted) {
  const std::lock_guard lock(mutex_);
  std::int64_t granted = wanted;
  if (plan_.byte_budget >= 0) {
    granted = std::min(wanted, plan_.byte_budget);
    plan_.byte_budget -= granted;
  }
  bytes_written_ += granted;
  return granted;
}

class FaultyFiles::Writer final : public WritableFile {
 public:
  Writer(FaultyFiles& owner, std::unique_ptr<WritableFile> inner, std::string path)
      : owner_(owner), inner_(std::move(inner)), path_(std::move(path)) {}

  void append(std::span<const std::byte> bytes) override {
    if (const double seconds = owner_.slow_seconds(); seconds > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
    bool torn = false;
    owner_.step("append", path_, &torn);
    if (torn) {
      inner_->append(bytes.first(bytes.size() / 2));
      owner_.fail_torn(path_);
    }
    const std::size_t granted = owner_.take_budget(static_cast<std::int64_t>(bytes.size()));
    inner_->append(bytes.first(granted));
    if (granted < bytes.size()) throw FileError(ENOSPC, "injected full disk while writing " + path_);
  }
  void sync() override {
    owner_.step("sync", path_, nullptr);
    inner_->sync();
  }
  void close() override {
    owner_.step("close", path_, nullptr);
    inner_->close();
  }

 private:
  FaultyFiles& owner_;
  std::unique_ptr<WritableFile> inner_;
  std::string path_;
};

class FaultyFiles::Reader final : public ReadableFile {
 public:
  Reader(FaultyFiles& owner, std::unique_ptr<ReadableFile> inner, std::string path)
      : owner_(owner), inner_(std::move(inner)), path_(std::move(path)) {}
  std::int64_t size() const override { return inner_->size(); }
  void read(std::int64_t offset, std::span<std::byte> out) const override {
    owner_.step("read", path_, nullptr);
    inner_->read(offset, out);
  }

 private:
  FaultyFiles& owner_;
  std::unique_ptr<ReadableFile> inner_;
  std::string path_;
};

std::unique_ptr<WritableFile> FaultyFiles::create(const std::string& path) {
  step("create", path, nullptr);
  return std::make_unique<Writer>(*this, inner_.create(path), path);
}

std::unique_ptr<WritableFile> FaultyFiles::append_to(const std::string& path) {
  step("append_to", path, nullptr);
  return std::make_unique<Writer>(*this, inner_.append_to(path), path);
}

std::unique_ptr<ReadableFile> FaultyFiles::open(const std::string& path) {
  step("open", path, nullptr);
  return std::make_unique<Reader>(*this, inner_.open(path), path);
}

void FaultyFiles::rename(const std::string& from, const std::string& to) {
  step("rename", from + " " + to, nullptr);
  inner_.rename(from, to);
}

void FaultyFiles::remove(const std::string& path) {
  step("remove", path, nullptr);
  inner_.remove(path);
}

void FaultyFiles::truncate(const std::string& path, std::int64_t size) {
  step("truncate", path, nullptr);
  inner_.truncate(path, size);
}

void FaultyFiles::sync_directory(const std::string& path) {
  step("sync_directory", path, nullptr);
  inner_.sync_directory(path);
}

void FaultyFiles::make_directories(const std::string& path) {
  step("make_directories", path, nullptr);
  inner_.make_directories(path);
}

std::vector<DirectoryEntry> FaultyFiles::list(const std::string& path) {
  step("list", path, nullptr);
  return inner_.list(path);
}

bool FaultyFiles::exists(const std::string& path) {
  step("exists", path, nullptr);
  return inner_.exists(path);
}

void FaultyFiles::symlink(const std::string& target, const std::string& link) {
  step("symlink", link, nullptr);
  inner_.symlink(target, link);
}

std::int64_t FaultyFiles::free_bytes(const std::string& path) {
  step("free_bytes", path, nullptr);
  return inner_.free_bytes(path);
}

}  // namespace tenon::testing
