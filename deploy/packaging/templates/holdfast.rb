class Holdfast < Formula
  desc "Durable server for A2A (Agent2Agent) tasks on PostgreSQL"
  homepage "https://github.com/holdfast-a2a/holdfast"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/holdfast-a2a/holdfast/releases/download/v@VERSION@/holdfast_@VERSION@_darwin_arm64.tar.gz"
      sha256 "@darwin_arm64@"
    end
    on_intel do
      url "https://github.com/holdfast-a2a/holdfast/releases/download/v@VERSION@/holdfast_@VERSION@_darwin_amd64.tar.gz"
      sha256 "@darwin_amd64@"
    end
  end
  on_linux do
    on_arm do
      url "https://github.com/holdfast-a2a/holdfast/releases/download/v@VERSION@/holdfast_@VERSION@_linux_arm64.tar.gz"
      sha256 "@linux_arm64@"
    end
    on_intel do
      url "https://github.com/holdfast-a2a/holdfast/releases/download/v@VERSION@/holdfast_@VERSION@_linux_amd64.tar.gz"
      sha256 "@linux_amd64@"
    end
  end

  def install
    bin.install "holdfast"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/holdfast version")
  end
end
