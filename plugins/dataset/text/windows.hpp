// Base of the data sets of this folder: fields tokens and targets, both i32 [context], the checks of a
// request, and padding. Contract dataset/1.
#pragma once

#include "byte_codec.hpp"

#include <tenon/dataset.hpp>

#include <string>

namespace tenon::text {

class WindowDataset : public Dataset {
 public:
  std::int64_t batch() const final { return batch_; }
  const DataInfo& info() const final { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) final;
  /// Returns the text interface for plain text only; token files do not define their ids.
  void* query(std::string_view interface_id) override {
    return interface_id == TextCodec::kId && plain_bytes() ? static_cast<TextCodec*>(&codec_) : nullptr;
  }

 protected:
  /// `owner` names the component in messages: "data.text".
  WindowDataset(std::string owner, std::int64_t context, std::int64_t batch);
  /// The derived class sets sample counts and vocabulary.
  DataInfo& mutable_info() { return info_; }
  std::int64_t context() const { return context_; }

 private:
  /// Fills one window; called concurrently, allocates nothing.
  virtual void copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const = 0;
  /// Returns whether a token is a byte; false before open().
  virtual bool plain_bytes() const = 0;

  std::string owner_;
  std::int64_t context_, batch_;
  DataInfo info_;
  ByteCodec codec_;
};

}  // namespace tenon::text
