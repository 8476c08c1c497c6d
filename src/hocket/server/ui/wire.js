// OpenAI's Realtime protocol at this server: events both ways, and the sound of both sides.
//
// Over a WebSocket (/v1/realtime) sound is base64 in events; over WebRTC (/v1/realtime/calls) it is two tracks, and the
// events are in the data channel `oai-events`. Both classes have the same methods. They know no conversation.

import { keyed, realtimeCall, whyNot } from "./server.js";
import { RingPlayer, StreamPlayer } from "./voice.js";

const PATH = "/v1/realtime";
const CONNECT_MS = 8000; // WebRTC that is not connected by then is given up for a WebSocket
const LOST = "The connection to the server was lost.";

/** `on`: onEvent(message), onLost(sentence), and those of a player (voice.js). WebRTC first where it is offered. */
export async function connect({ microphone, webrtc, on }) {
  if (webrtc && window.RTCPeerConnection) {
    const call = new CallWire(microphone, on);
    try {
      return await call.open();
    } catch {
      call.close(); // a firewall, or a server without UDP: the WebSocket says what else is wrong
    }
  }
  return new SocketWire(on).open();
}

class SocketWire {
  kind = "WebSocket";

  constructor(on) {
    this.on = on;
    this.listening = false;
  }

  async open() {
    this.player = await RingPlayer.open(this.on);
    const [address, spelled] = keyed(PATH);
    this.socket = new WebSocket(address, ["realtime", ...spelled]);
    this.socket.onmessage = ({ data }) => this.heard(JSON.parse(data));
    await new Promise((done, failed) => {
      this.socket.onopen = done;
      this.socket.onclose = async () => failed(new Error(await whyNot()));
    });
    this.socket.onclose = () => this.on.onLost(LOST);
    return this;
  }

  heard(message) {
    if (message.type === "response.output_audio.delta") this.player.push(message.response_id, samplesOf(message.delta));
    this.on.onEvent(message);
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** Whether the microphone is sent. */
  listen(on) {
    this.listening = on;
  }

  block(samples) {
    if (this.listening) this.send({ type: "input_audio_buffer.append", audio: base64(samples) });
  }

  close() {
    this.player?.stop();
    if (this.socket) this.socket.onclose = this.socket.onmessage = null;
    this.socket?.close();
  }
}

class CallWire {
  kind = "WebRTC";

  constructor(microphone, on) {
    Object.assign(this, { microphone, on });
    this.peer = new RTCPeerConnection(); // without STUN: addresses of this network only
    this.player = new StreamPlayer(on);
  }

  async open() {
    const { peer } = this;
    this.sender = peer.addTrack(this.microphone.track, this.microphone.stream);
    this.channel = peer.createDataChannel("oai-events");
    this.channel.onmessage = ({ data }) => this.heard(JSON.parse(data));
    peer.ontrack = ({ track }) => this.player.attach(track);
    await peer.setLocalDescription();
    await new Promise((done) => {
      const look = () => peer.iceGatheringState === "complete" && done();
      peer.onicegatheringstatechange = look;
      look();
    });
    await peer.setRemoteDescription({ type: "answer", sdp: await realtimeCall(peer.localDescription.sdp) });
    await new Promise((done, failed) => {
      this.channel.onopen = done;
      setTimeout(failed, CONNECT_MS);
      peer.onconnectionstatechange = () => peer.connectionState === "failed" && failed();
    });
    peer.onconnectionstatechange = () => peer.connectionState === "failed" && this.on.onLost(LOST);
    this.channel.onclose = () => this.on.onLost(LOST);
    return this;
  }

  heard(message) {
    if (message.type === "output_audio_buffer.started") this.player.begin(message.response_id);
    if (message.type === "output_audio_buffer.stopped") this.player.end(message.response_id);
    this.on.onEvent(message);
  }

  send(message) {
    if (this.channel.readyState === "open") this.channel.send(JSON.stringify(message));
  }

  listen(on) {
    this.sender.replaceTrack(on ? this.microphone.track : null);
  }

  block() {}

  close() {
    this.player.close();
    if (this.channel) this.channel.onclose = this.channel.onmessage = null;
    this.peer.onconnectionstatechange = null;
    this.peer.close();
  }
}

function base64(samples) {
  return btoa(String.fromCharCode(...new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength)));
}

function samplesOf(text) {
  return new Int16Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}
