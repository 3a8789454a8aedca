# SPDX-License-Identifier: Apache-2.0
"""Hosts for measurements: network namespaces of this machine, and the processes of a job in them. A bridge in a namespace of
its own connects them. Needs Linux, iproute2 and root."""

import os
import secrets
import socket
import subprocess

link = "replicator"  # the interface of each host
burst = 128 << 10    # bytes that a shaped link lets pass at once
queue = 1 << 20  # bytes that wait for the link; more are lost


class Failed(Exception):
    pass


def address(host):
    return f"10.77.77.{host + 1}"


def namespace(host):
    return f"replicator-{os.getpid()}-{host}"


def within(host, command):
    return ["ip", "netns", "exec", namespace(host), *command]


def network(command, *words):
    try:
        subprocess.run([*command.split(), *words], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("network namespaces need ip and tc (iproute2)") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit("network namespaces need root, and a kernel that has namespaces, veth (with a delay: TAP devices) and tbf: "
                         f"{command}: {error.stderr.strip()}") from None


class Namespaces:
    """A namespace for each host; they are removed with this object.

    `rate`: bits/s of each host's link, each way; 0: unlimited. `delay`: microseconds of each link, each way, by the program `forwarder`
    (bench/delay); 0: none. `settings`: sysctl settings of each host."""

    def __init__(self, hosts, rate=0, delay=0, forwarder=None, settings=()):
        self.names, self.forwarders, self.settings = [], [], settings
        try:
            self.make(hosts, delay, forwarder)
            if rate:
                self.shape(hosts, rate)
        except BaseException:
            self.close()
            raise

    def make(self, hosts, delay, forwarder):
        bridge = namespace("bridge")
        for name in [bridge, *map(namespace, range(hosts))]:
            network(f"ip netns add {name}")
            self.names.append(name)
            network(f"ip -n {name} link set lo up")
            for setting in self.settings:
                network(f"ip netns exec {name} sysctl -q -w", setting)
        network(f"ip -n {bridge} link add name middle type bridge")
        network(f"ip -n {bridge} link set middle up")
        for host in range(hosts):
            end = f"end{host}"
            if delay:
                self.forward(forwarder, delay, [namespace(host), link, bridge, end])
            else:
                network(f"ip -n {bridge} link add {end} type veth peer name {link} netns {namespace(host)}")
            network(f"ip -n {bridge} link set {end} master middle up")
            network(f"ip -n {namespace(host)} addr add {address(host)}/24 dev {link}")
            network(f"ip -n {namespace(host)} link set {link} up")

    def forward(self, forwarder, delay, ends):
        started = subprocess.Popen([str(forwarder), str(delay), *ends], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.forwarders.append(started)
        if started.stdout.readline() != "ready\n":
            raise SystemExit(f"{forwarder} could not connect {ends}")

    def shape(self, hosts, rate):
        """Limits sending at the host's end and receiving at the bridge's. Queues are as short as those of switches: heartbeats wait in them too."""
        for host in range(hosts):
            for name, device in ((namespace(host), link), (namespace("bridge"), f"end{host}")):
                network(f"tc -n {name} qdisc replace dev {device} root tbf rate {rate}bit burst {burst} limit {queue}")

    def close(self):
        for started in self.forwarders:
            started.stdin.close()
            started.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def spawned(commands, master, more, timeout):
    """Runs a process of a job for each command, and returns their standard outputs. `more`: environment variables."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    started = []
    try:
        for process, command in enumerate(commands):
            environment = dict(os.environ, RANK=str(process), WORLD_SIZE=str(len(commands)), MASTER_ADDR=master,
                               MASTER_PORT=str(port), OMP_NUM_THREADS="1", **{"REPLICATOR_JOB_TOKEN": secrets.token_hex(32), **more})
            started.append(subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        outputs = [process.communicate(timeout=timeout) for process in started]
    except subprocess.TimeoutExpired:
        raise Failed(f"not finished after {timeout} s") from None
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, outputs):
        if process.returncode:
            raise Failed(errors.strip() or f"exit code {process.returncode}")
    return [output for output, _ in outputs]


def over_tcp():
    """Environment variables that restrict UCX to tcp on the interface of its namespace, without shared memory."""
    return {"UCX_TLS": "tcp", "UCX_NET_DEVICES": link}
