// For tests: a file of pages in memory that counts transfers and fails one of them as disks do.
#pragma once

#include "page_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

namespace tenon::tier_file {

enum class Fault : std::uint8_t {
  kNone,
  kReadFails,       ///< EIO
  kFileEnds,        ///< somebody has shortened the file
  kBitFlips,        ///< in what is read, without an error
  kWriteFails,      ///< EIO; the file is as before
  kWriteTears,      ///< EIO; the file has a half
  kWriteTearsMute,  ///< a half, without an error
  kWriteIsLost,     ///< nothing, without an error
};
constexpr Fault kFaultsOfReads[] = {Fault::kReadFails, Fault::kFileEnds, Fault::kBitFlips};
constexpr Fault kFaultsOfWrites[] = {Fault::kWriteFails, Fault::kWriteTears, Fault::kWriteTearsMute,
                                     Fault::kWriteIsLost};

class FaultyPages final : public PageFile {
 public:
  explicit FaultyPages(std::int64_t bytes) : bytes_(bytes) {}

  void read(std::span<PageTransfer> transfers) override {
    const std::lock_guard lock(mutex_);
    ++read_calls;
    for (PageTransfer& transfer : transfers) {
      const Fault fault = next(false);
      reads += pages_of(transfer);
      if (fault == Fault::kReadFails) transfer.error = EIO;
      if (fault == Fault::kFileEnds) transfer.error = kEndOfFile;
      if (transfer.error != 0) continue;
      std::memcpy(transfer.data, bytes_.data() + transfer.offset, transfer.bytes);
      if (fault == Fault::kBitFlips) transfer.data[transfer.bytes / 2] ^= std::byte{4};
    }
  }
  void write(std::span<PageTransfer> transfers) override {
    const std::lock_guard lock(mutex_);
    ++write_calls;
    for (PageTransfer& transfer : transfers) {
      const Fault fault = next(true);
      writes += pages_of(transfer);
      if (fault == Fault::kWriteFails || fault == Fault::kWriteTears) transfer.error = EIO;
      if (fault == Fault::kWriteFails || fault == Fault::kWriteIsLost) continue;
      const bool torn = fault == Fault::kWriteTears || fault == Fault::kWriteTearsMute;
      std::memcpy(bytes_.data() + transfer.offset, transfer.data, torn ? transfer.bytes / 2 : transfer.bytes);
    }
  }

  std::span<const std::byte> bytes() const { return bytes_; }

  std::int64_t reads = 0, writes = 0;  ///< pages
  std::int64_t read_calls = 0, write_calls = 0;
  std::vector<bool> history;   ///< of each transfer, whether it wrote
  std::int64_t fault_at = -1;  ///< transfer that fails; the others do not
  Fault fault = Fault::kNone;
  bool writes_fail = false;  ///< all of them

 private:
  static std::int64_t pages_of(const PageTransfer& transfer) {
    return static_cast<std::int64_t>(transfer.bytes / kPageBytes);
  }
  Fault next(bool write) {
    const auto number = static_cast<std::int64_t>(history.size());
    history.push_back(write);
    if (write && writes_fail) return Fault::kWriteFails;
    return number == fault_at ? fault : Fault::kNone;
  }

  std::mutex mutex_;
  std::vector<std::byte> bytes_;
};

}  // namespace tenon::tier_file
