import com.linkedin.common.urn.Urn;
import com.linkedin.data.DataList;
import com.linkedin.data.DataMap;
import com.linkedin.data.avro.AvroToDataSchemaTranslationMode;
import com.linkedin.data.avro.AvroToDataSchemaTranslationOptions;
import com.linkedin.data.avro.SchemaTranslator;
import com.linkedin.data.codec.JacksonDataCodec;
import com.linkedin.data.message.Message;
import com.linkedin.data.schema.DataSchema;
import com.linkedin.data.schema.NamedDataSchema;
import com.linkedin.data.schema.validation.CoercionMode;
import com.linkedin.data.schema.validation.RequiredMode;
import com.linkedin.data.schema.validation.UnrecognizedFieldMode;
import com.linkedin.data.schema.validation.ValidateDataAgainstSchema;
import com.linkedin.data.schema.validation.ValidationOptions;
import com.linkedin.data.schema.validation.ValidationResult;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Validates aspects and URNs with the classes that DataHub's servers use: Pegasus' ValidateDataAgainstSchema against
 * the Avro schemas that acryl-datahub ships, translated by Pegasus, and DataHub's own URN classes.
 *
 * <p>Reads lines of JSON, {"aspectName": …, "entityUrn": …, "value": …}, and answers each by one line of JSON: a list
 * of what is wrong.
 */
public final class Validate {
  private static final ValidationOptions OPTIONS =
      new ValidationOptions(
          RequiredMode.CAN_BE_ABSENT_IF_HAS_DEFAULT, CoercionMode.NORMAL, UnrecognizedFieldMode.DISALLOW);
  private static final Pattern URN = Pattern.compile("\"(urn:li:[^\"\\\\]*)\"");
  private static final JacksonDataCodec CODEC = new JacksonDataCodec();

  private Validate() {}

  /**
   * Runs with the folder of the Avro schemas, and Pegasus 27 first in the class path, or without arguments, and
   * DataHub's client alone: its URN classes need a later Pegasus than the translator has.
   */
  public static void main(String[] arguments) throws Exception {
    Map<String, DataSchema> schemas = arguments.length == 0 ? null : schemas(Path.of(arguments[0]));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      TreeSet<String> problems = new TreeSet<>();
      if (schemas == null) {
        Matcher urns = URN.matcher(line);
        while (urns.find()) {
          checkUrn(urns.group(1), problems);
        }
      } else {
        checkAspect(CODEC.stringToMap(line), schemas, problems);
      }
      DataList answer = new DataList(List.copyOf(problems));
      System.out.println(new String(CODEC.listToBytes(answer), StandardCharsets.UTF_8));
    }
  }

  private static void checkAspect(DataMap proposal, Map<String, DataSchema> schemas, TreeSet<String> problems) {
    DataSchema schema = schemas.get(proposal.getString("aspectName"));
    if (schema == null) {
      problems.add("no schema of aspect " + proposal.getString("aspectName"));
      return;
    }
    try {
      ValidationResult result = ValidateDataAgainstSchema.validate(proposal.getDataMap("value"), schema, OPTIONS);
      for (Message message : result.getMessages()) {
        problems.add(message.toString());
      }
    } catch (IllegalStateException error) {
      // A map or a list in the place of something else: the validator itself fails.
      problems.add(error.getMessage());
    }
  }

  private static Map<String, DataSchema> schemas(Path folder) throws Exception {
    AvroToDataSchemaTranslationOptions options =
        new AvroToDataSchemaTranslationOptions(AvroToDataSchemaTranslationMode.TRANSLATE);
    Map<String, DataSchema> schemas = new HashMap<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.avsc")) {
      for (Path file : files) {
        String text = Files.readString(file).replace("com.linkedin.pegasus2avro", "com.linkedin");
        DataSchema schema = SchemaTranslator.avroToDataSchema(text, options);
        if (schema instanceof NamedDataSchema && schema.getProperties().get("Aspect") instanceof DataMap) {
          schemas.put(((DataMap) schema.getProperties().get("Aspect")).getString("name"), schema);
        }
      }
    }
    return schemas;
  }

  /** Parses a URN generically, and with the class of its entity type if there is one. */
  private static void checkUrn(String text, TreeSet<String> problems) {
    try {
      String type = Urn.createFromString(text).getEntityType();
      String name = Character.toUpperCase(type.charAt(0)) + type.substring(1) + "Urn";
      Method parse = Class.forName("com.linkedin.common.urn." + name).getMethod("createFromString", String.class);
      parse.invoke(null, text);
    } catch (ClassNotFoundException noClass) {
      // An entity type without a class of its own.
    } catch (Exception error) {
      Throwable cause = error.getCause() == null ? error : error.getCause();
      problems.add(text + ": " + cause.getMessage());
    }
  }
}
