// What the data sets of this folder share: fields tokens and targets, both i32 [context], the checks of a
// request, and padding. Contract dataset/1.
#pragma once

#include <tenon/dataset.hpp>

#include <string>

namespace tenon::text {

class WindowDataset : public Dataset {
 public:
  std::int64_t batch() const final { return batch_; }
  const DataInfo& info() const final { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) final;
  void* query(std::string_view) override { return nullptr; }

 protected:
  /// `owner` names the component in messages: "data.text".
  WindowDataset(std::string owner, std::int64_t context, std::int64_t batch);
  /// Sample counts and vocabulary are the derived class's to add.
  DataInfo& mutable_info() { return info_; }
  std::int64_t context() const { return context_; }

 private:
  /// Fills one window; called concurrently, allocates nothing.
  virtual void copy(Split split, std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const = 0;

  std::string owner_;
  std::int64_t context_, batch_;
  DataInfo info_;
};

}  // namespace tenon::text
