{
  description = "A durable server for A2A (Agent2Agent) tasks on PostgreSQL";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";

  outputs = { nixpkgs, ... }: {
    packages = builtins.mapAttrs (system: archive: {
      default = nixpkgs.legacyPackages.${system}.stdenvNoCC.mkDerivation {
        pname = "holdfast";
        version = "@VERSION@";
        src = nixpkgs.legacyPackages.${system}.fetchurl {
          url = "https://github.com/holdfast-a2a/holdfast/releases/download/v@VERSION@/holdfast_@VERSION@_${archive.name}.tar.gz";
          sha256 = archive.sha256;
        };
        installPhase = "install -D -m 755 holdfast $out/bin/holdfast";
        meta.mainProgram = "holdfast";
      };
    }) {
      x86_64-linux = { name = "linux_amd64"; sha256 = "@linux_amd64@"; };
      aarch64-linux = { name = "linux_arm64"; sha256 = "@linux_arm64@"; };
      x86_64-darwin = { name = "darwin_amd64"; sha256 = "@darwin_amd64@"; };
      aarch64-darwin = { name = "darwin_arm64"; sha256 = "@darwin_arm64@"; };
    };
  };
}
