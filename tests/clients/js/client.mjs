// One thing done with the `openai` package: `node client.mjs BASE_URL MODEL CASE` prints what came of it as JSON.
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const [baseURL, model, name] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0, timeout: 60_000 });
const messages = [{ role: "user", content: "Weather in Oslo?" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Oslo", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const weather = { name: "weather", description: "The weather of a city.", parameters, strict: true };
const limits = { max_output_tokens: 200 };
const flat = { type: "function", ...weather };

async function collect(stream, take) {
  const taken = [];
  for await (const event of stream) {
    const value = take(event);
    if (value) taken.push(value);
  }
  return taken;
}

const cases = {
  async chat() {
    const answer = await client.chat.completions.create({ model, messages, service_tier: "fast", max_tokens: 50 });
    return { text: answer.choices[0].message.content, tier: answer.service_tier, usage: answer.usage };
  },

  async chatStream() {
    const options = { stream: true, stream_options: { include_usage: true } };
    let usage = null;
    const texts = await collect(await client.chat.completions.create({ model, messages, ...options }), (chunk) => {
      usage = chunk.usage ?? usage;
      return chunk.choices[0]?.delta.content;
    });
    return { text: texts.join(""), usage };
  },

  async chatTools() {
    const tools = [
      { type: "function", function: { ...weather, parse: JSON.parse, function: ({ city }) => `3 degrees in ${city}` } },
    ];
    const runner = client.chat.completions.runTools({ model, messages, tools, stream: true });
    return { text: await runner.finalContent(), roles: runner.messages.map((message) => message.role) };
  },

  async responses() {
    const answer = await client.responses.create({ model, input: "Hi", service_tier: "ultrafast", max_output_tokens: 50 });
    return { text: answer.output_text, tier: answer.service_tier, status: answer.status };
  },

  async responsesStream() {
    const stream = client.responses.stream({ model, input: "Weather in Oslo?", tools: [flat] });
    const types = await collect(stream, (event) => event.type);
    const { output } = await stream.finalResponse();
    const calls = output.filter((item) => item.type === "function_call");
    return { types: [...new Set(types)], calls: calls.map(({ name, arguments: text }) => [name, JSON.parse(text)]) };
  },

  async responsesTools() {
    const asked = { model, input: messages, tools: [flat], tool_choice: "required", ...limits };
    const first = await client.responses.create(asked);
    const call = first.output.find((item) => item.type === "function_call");
    const result = { type: "function_call_output", call_id: call.call_id, output: "3 degrees" };
    const input = [result];
    const second = await client.responses.create({ model, input, previous_response_id: first.id, max_output_tokens: 50 });
    return { called: [call.name, JSON.parse(call.arguments)], text: second.output_text };
  },

  async socket() {
    const socket = new ResponsesWS(client);
    const types = [];
    const turns = [
      (previous_response_id) => ({ input: "Hi", store: false, previous_response_id }),
      (previous_response_id) => ({ input: "And?", store: false, previous_response_id }),
    ];
    const answers = [];
    const next = () => {
      const turn = turns[answers.length](answers.at(-1)?.id);
      socket.send({ type: "response.create", model, max_output_tokens: 50, ...turn });
    };
    await new Promise((resolve, reject) => {
      socket.on("error", reject);
      socket.on("event", (event) => {
        types.push(event.type);
        if (event.type === "response.failed") reject(new Error(JSON.stringify(event)));
        if (event.type !== "response.completed" && event.type !== "response.incomplete") return;
        answers.push(event.response);
        if (answers.length === turns.length) resolve();
        else next();
      });
      next();
    });
    socket.close();
    const texts = answers.map(({ output }) => output[0].content[0].text);
    return { texts, follows: answers[1].previous_response_id === answers[0].id, first: types[0] };
  },

  async errors() {
    const caught = await client.responses.create({ model: "other", input: "Hi" }).catch((error) => error);
    const wrong = await client.chat.completions.create({ model, messages, temperature: 9 }).catch((error) => error);
    return {
      missing: [caught instanceof OpenAI.NotFoundError, caught.code, caught.param, caught.requestID !== undefined],
      wrong: [wrong instanceof OpenAI.BadRequestError, wrong.status, wrong.param],
    };
  },
};

console.log(JSON.stringify(await cases[name]()));
