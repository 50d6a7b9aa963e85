// Recent outputs, kept apart by domain: what one domain wrote never becomes a draft in another.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode/draft_index.h"

namespace ultrafast {

class DraftMemory {
 public:
  static constexpr int kTokens = 1 << 16;  // kept of a domain, the latest; 1.3 MB with their chains
  static constexpr int kMaxDomains = 16;   // one more, and the least recently used is forgotten

  void remember(const std::string& domain, const std::vector<int32_t>& tokens);

  // The outputs of a domain, or nullptr. Good until the next remember().
  const DraftIndex* find(const std::string& domain);

 private:
  std::vector<std::pair<std::string, std::unique_ptr<DraftIndex>>> domains_;  // most recently used first
};

}  // namespace ultrafast
