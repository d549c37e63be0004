#!/usr/bin/env python3
"""Write the routes and the catalog of several installations, for haproxy-shards.cfg.

    CATALOG_KEY=hf_... routes.py --out /usr/local/etc/haproxy/shards \\
        shard_a=http://10.0.1.11:8080 shard_b=http://10.0.2.11:8080 --host acme.agents.example.com=shard_b

Each argument is a backend and a replica of its installation. The catalog of an installation says which agents it has,
and its cards under which name clients reach it. CATALOG_KEY is sent as X-API-Key: the catalog has what its owner may see.
--agent says which of several installations that have an agent gets it, while it moves. --host adds names, for tenants
whose agents are in several installations. Nothing is written if anything is wrong.
"""

import argparse
import json
import os
import pathlib
import sys
import urllib.parse
import urllib.request


def agents_of(base):
    """The agents of an installation, from all pages of its catalog."""
    token = ""
    while True:
        query = urllib.parse.urlencode({"pageSize": 100, **({"pageToken": token} if token else {})})
        request = urllib.request.Request(f"{base.rstrip('/')}/agents?{query}")
        if key := os.environ.get("CATALOG_KEY"):
            request.add_header("X-API-Key", key)
        with urllib.request.urlopen(request, timeout=10) as answer:
            page = json.load(answer)
        yield from page["agents"]
        token = page["nextPageToken"]
        if not token:
            return


def routes(shards, chosen, more_hosts):
    """The names, the agents and the catalog of all installations."""
    hosts, agents, catalog = {}, {}, []
    for shard, base in shards:
        for agent in agents_of(base):
            name = agent["name"]
            host = urllib.parse.urlsplit(agent["cardUrl"]).hostname
            if hosts.setdefault(host, shard) != shard:
                raise SystemExit(f"routes.py: {hosts[host]} and {shard} have the same public_url: {host}")
            if chosen.get(name, shard) != shard:
                continue
            if name in agents:
                raise SystemExit(f"routes.py: {agents[name]} and {shard} both have the agent {name}: choose one with --agent")
            agents[name] = shard
            # The default agent of an installation is not that of all.
            catalog.append({**agent, "default": False})
    for name, shard in chosen.items():
        if agents.get(name) != shard:
            raise SystemExit(f"routes.py: --agent {name}={shard}: that installation has no such agent")
    for host, shard in more_hosts:
        if shard not in dict(shards) or hosts.setdefault(host.lower(), shard) != shard:
            raise SystemExit(f"routes.py: --host {host}={shard}: no such backend, or the name leads to another one")
    catalog.sort(key=lambda agent: agent["name"])
    return hosts, agents, {"agents": catalog, "nextPageToken": "", "pageSize": len(catalog), "totalSize": len(catalog)}


def pair(text):
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text}: write NAME=VALUE")
    return name, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", nargs="+", type=pair, metavar="BACKEND=URL")
    parser.add_argument("--agent", action="append", default=[], type=pair, metavar="NAME=BACKEND")
    parser.add_argument("--host", action="append", default=[], type=pair, metavar="NAME=BACKEND")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    hosts, agents, catalog = routes(args.shards, dict(args.agent), args.host)
    for name, table in (("hosts.map", hosts), ("agents.map", agents)):
        write(args.out / name, "".join(f"{key} {shard}\n" for key, shard in sorted(table.items())))
    write(args.out / "agents.json", json.dumps(catalog))
    print(f"{len(agents)} agents, {len(hosts)} names", file=sys.stderr)


def write(path, text):
    """Replace a file as a whole."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    main()
